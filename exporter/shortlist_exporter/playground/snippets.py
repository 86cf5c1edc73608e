"""Commands that ask a server what the page just asked: for a shell and for Python."""

from __future__ import annotations

import shlex
from typing import Any

import orjson

from .compare import Query
from .schemas import Question, Snippets

KEY_HEADER = '-H "Authorization: Bearer $SHORTLIST_KEY" '
PYTHON_KEY = ", api_key=os.environ['SHORTLIST_KEY']"


def write_body(model: str, version: int, query: Query) -> dict[str, Any]:
    """The body of a request to /v1/topk."""
    lists = {"allow": query.allow, "ban": query.ban}
    return {
        "model": model,
        "version": version,
        "contexts": query.contexts,
        "k": query.k,
        **{name: ids for name, ids in lists.items() if ids},
        **({"exact": True} if query.exact else {}),
    }


def encode(value: Any) -> str:
    """JSON; float32 in as few digits as tell it apart."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def write_snippets(url: str, body: dict[str, Any], question: Question, *, key: bool) -> Snippets:
    """Commands for a request to the server at `url`. key: whether it wants one, which they take from a variable."""
    text = None if question.contexts is not None else question.text
    return Snippets(curl=write_curl(url, body, key=key), python=write_python(url, body, text, key=key))


def write_curl(url: str, body: dict[str, Any], *, key: bool) -> str:
    """A command for a shell. key: whether the server wants one, which the command takes from a variable."""
    asked = shlex.quote(encode(body | {"risk": True}))
    header = "-H 'Content-Type: application/json' " + (KEY_HEADER if key else "")
    return f"curl -s {shlex.quote(f'{url}/v1/topk')} {header}\\\n  -d {asked}"


def write_python(url: str, body: dict[str, Any], text: str | None, *, key: bool) -> str:
    """A program. text: the prompt that the vectors are of, named in a comment."""
    names = [f"{name}={body[name]!r}" for name in ("version", "allow", "ban", "exact") if name in body]
    arguments = ", ".join(["contexts", f"k={body['k']}", *names, "risk=True"])
    return "\n".join(
        [
            *(["import os", ""] if key else []),
            "import numpy as np",
            "import shortlist",
            "",
            *([] if text is None else [f"# after the text {encode(text)}"]),
            f"contexts = np.array({encode(body['contexts'])}, np.float32)",
            f"with shortlist.Client({url!r}{PYTHON_KEY if key else ''}) as client:",
            f"    top = client.topk({body['model']!r}, {arguments})",
            "    print(top.ids, top.logprobs, top.risk)",
        ]
    )
