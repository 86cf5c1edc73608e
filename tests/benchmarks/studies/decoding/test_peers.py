"""CTranslate2 on the tiny translator, and sacrebleu: in an environment that `make bench-decoding` makes."""

from pathlib import Path

import numpy as np
import pytest
from shortlist.errors import BadInput

from benchmarks.studies.decoding.measure import translate_by_peer
from benchmarks.studies.decoding.peers import Peers, write_vmap
from tests.benchmarks.studies.decoding.tiny import make_study

pytestmark = pytest.mark.slow

PYTHON = Path("build/venvs/translators/bin/python")
needs_peers = pytest.mark.skipif(not PYTHON.is_file(), reason="`make bench-decoding` has not installed CTranslate2")


@needs_peers
def test_ctranslate2_finds_the_same_translations(tmp_path):
    tiny, peers = make_study(tmp_path), Peers(PYTHON, tmp_path / "peers")
    for beam in (1, 4):
        found = tiny.search(tiny.full, tiny.sentences, beam)
        assert translate_by_peer(tiny, peers, beam, use_vmap=False).tokens == found.tokens
        answer = peers.translate(peers.convert(tiny.task), tiny.lines, beam, use_vmap=False)
        np.testing.assert_allclose(answer["scores"], [each.score for each in found.best], atol=1e-4)
    narrow = translate_by_peer(tiny, peers, 4, use_vmap=True)
    assert len(narrow.tokens) == len(tiny.sentences)


@needs_peers
def test_bleu(tmp_path):
    lines = ["a b c d e", "f g h i j", "k l m n o"]
    systems = {"same": lines, "other": ["a b c d x", "f g h i j", "k l m n o"]}
    answer = Peers(PYTHON, tmp_path).ask("bleu", {"systems": systems, "references": lines})
    assert answer["bleu"]["same"] == pytest.approx(100)
    assert answer["bleu"]["other"] < 100
    assert "tok:none" in answer["signature"]


@needs_peers
def test_a_command_that_fails_says_why(tmp_path):
    with pytest.raises(BadInput, match=r"translate failed: .*folder"):
        Peers(PYTHON, tmp_path).ask("translate", {})


def test_an_environment_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="`make bench-decoding` installs it"):
        Peers(tmp_path / "python", tmp_path)


def test_words_are_mapped_to_their_translations(tmp_path):
    write_vmap(tmp_path / "vmap", ["a b", "a c", "b c"], ["A B", "A C", "B C"])
    lines = dict(line.split("\t") for line in (tmp_path / "vmap").read_text().splitlines())
    assert lines[""].split() == ["A", "B", "C"]
    assert [lines[word].split()[0] for word in "abc"] == ["A", "B", "C"]
