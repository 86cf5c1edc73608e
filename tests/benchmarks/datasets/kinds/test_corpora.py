import json

import numpy as np
import pytest
from shortlist.errors import NotFound

from benchmarks.datasets.kinds import corpora
from benchmarks.datasets.kinds.base import Place
from benchmarks.datasets.kinds.packages import Packages


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, Packages(tmp_path / "packages"))


def test_news_is_words_with_a_sentence_a_line(tmp_path, place):
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "vocab.txt").write_text("the\nnews\n<eos>")
    np.save(tmp_path / "ptb" / "test.npy", np.array([0, 1, 2] * 80, np.int32))
    parts = list(corpora.find_news(place))
    assert len(parts) == corpora.PARTS
    assert parts[0] == "the news\nthe news"


def test_sentences_are_cut_into_parts_that_share_no_line(tmp_path, place):
    (tmp_path / "enja").mkdir()
    (tmp_path / "enja" / "train.en").write_text("".join(f"sentence {number}\n" for number in range(200)))
    lines = [line for part in corpora.find_english_sentences(place) for line in part.splitlines()]
    assert lines == [f"sentence {number}" for number in range(200)]


@pytest.mark.parametrize("find", [corpora.find_wikitext, corpora.find_news, corpora.find_japanese_sentences])
def test_a_corpus_that_is_not_there_is_named(place, find):
    with pytest.raises(NotFound, match=r"it needs --data \(or DATA\), a folder with (wikitext-2|ptb|enja)/"):
        list(find(place))


def test_conversations_of_many_turns(tmp_path, place):
    folder = tmp_path / "packages" / "chitchat-dataset" / "chitchat_dataset"
    folder.mkdir(parents=True)
    long = [[{"text": f" turn {turn} ", "sender": "xy"[turn % 2]}] for turn in range(corpora.LEAST_TURNS)]
    (folder / "dataset.json").write_text(json.dumps({"1": {"messages": long}, "2": {"messages": long[:3]}}))
    conversations = list(corpora.find_dialogue(place))
    assert len(conversations) == 1
    assert conversations[0].startswith("A: turn 0\nB: turn 1\nA: turn 2\n")
