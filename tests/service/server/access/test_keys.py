"""API keys: how they are written, and which secret opens what."""

from __future__ import annotations

import pytest
from shortlist.errors import BadInput
from shortlist.server.access.keys import ALL_ROLES, Role, parse_keys, read_keys

ONE, TWO = "k" * 16, "Az09._~+/=-" + "q" * 16
TEXT = f"""
# who asks
decoder   ask                        {ONE}   # translation

oncall    ask,observe,administer     {TWO}
"""


def test_a_file_of_keys(tmp_path):
    file = tmp_path / "keys"
    file.write_text(TEXT)
    ring = read_keys(file, None)
    assert ring.find(ONE.encode()).name == "decoder"
    assert ring.find(ONE.encode()).roles == {Role.ASK}
    assert (ring.find(TWO.encode()).name, ring.find(TWO.encode()).roles) == ("oncall", ALL_ROLES)
    for wrong in (b"", ONE[:-1].encode(), ONE.encode() + b"k", ONE.upper().encode(), b"\xff" * 16):
        assert ring.find(wrong) is None


def test_a_variable_of_keys_and_both_together(tmp_path):
    assert [key.name for key in read_keys(None, f"a ask {ONE}; b observe {TWO}").keys] == ["a", "b"]
    file = tmp_path / "keys"
    file.write_text(f"b observe {TWO}\n")
    assert [key.name for key in read_keys(file, f"a ask {ONE}").keys] == ["a", "b"]
    assert read_keys(None, None) is None


def test_no_secret_is_kept():
    (key,) = parse_keys(f"a ask {ONE}", "here")
    assert ONE not in repr(key)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no API key"),
        ("# nothing\n", "holds no API key"),
        (ONE, "entry 1 has 1 words"),
        (f"\na ask {ONE} more", "entry 2 has 4 words"),
        (f"a root {ONE}", "has the role 'root': known are ask, observe, administer"),
        (f"a ask, {ONE}", "has the role ''"),
        ("a ask short-secret", "give 16 random ones or more"),
        (f"a ask {ONE}\u00e9", "other characters"),
        (f"a ask {ONE}; a ask {TWO}", "twice"),
        (f"a ask {ONE}; b ask {ONE}", "twice"),
    ],
)
def test_wrong_keys_are_refused_in_a_sentence_without_secrets(text, words):
    with pytest.raises(BadInput) as caught:
        read_keys(None, text)
    sentence = str(caught.value)
    assert words in sentence
    assert sentence.startswith("SHORTLIST_API_KEYS")
    assert not any(secret in sentence for secret in (ONE, TWO, "short-secret"))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_keys(tmp_path / "none", None)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="it is no text"):
        read_keys(tmp_path / "binary", None)


def test_every_key_is_compared_whatever_matched(monkeypatch):
    """The time that a comparison takes tells nothing of the keys."""
    from shortlist.server.access import keys

    ring, compared = read_keys(None, f"a ask {ONE}; b ask {TWO}"), []
    compare = keys.hmac.compare_digest
    monkeypatch.setattr(keys.hmac, "compare_digest", lambda *digests: compared.append(digests) or compare(*digests))
    for secret in (ONE, TWO, "unknown"):
        compared.clear()
        ring.find(secret.encode())
        assert len(compared) == 2
        assert {len(digest) for pair in compared for digest in pair} == {32}
