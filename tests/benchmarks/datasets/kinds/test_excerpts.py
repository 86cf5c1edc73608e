import numpy as np

from benchmarks.datasets.kinds.excerpts import (
    EXCERPT_CHARACTERS,
    SHIPPED_TEXTS,
    SHORT_CHARACTERS,
    choose_excerpts,
    cut_excerpt,
    drop_copies,
    is_shipped,
    read_shipped_lines,
)


def make_text(name, lines=400):
    return "".join(f"{name} has a line that is numbered {number} of them\n" for number in range(lines))


def test_so_many_excerpts_of_different_documents_the_same_for_a_seed():
    texts = [make_text(f"document {index}") for index in range(9)]
    excerpts = choose_excerpts(iter(texts), 5, seed=0)
    assert len({text.split(" has ")[0] for text in excerpts}) == 5
    assert excerpts == choose_excerpts(iter(texts), 5, seed=0)
    assert excerpts != choose_excerpts(iter(texts), 5, seed=1)
    assert len(choose_excerpts(texts, 50, seed=0)) == 9


def test_an_excerpt_of_a_long_text_begins_at_a_line():
    text = make_text("it")
    for seed in range(20):
        excerpt = cut_excerpt(text, np.random.default_rng(seed))
        assert excerpt.startswith("it has")
        assert excerpt in text
        assert SHORT_CHARACTERS // 2 <= len(excerpt) <= EXCERPT_CHARACTERS


def test_a_long_text_without_lines_is_cut_all_the_same():
    excerpt = cut_excerpt("word " * 1000, np.random.default_rng(0))
    assert len(excerpt) >= SHORT_CHARACTERS


def test_a_short_text_is_its_own_excerpt():
    assert cut_excerpt("short\n", np.random.default_rng(0)) == "short\n"


def test_texts_that_begin_alike_are_copies():
    first, second = make_text("first"), make_text("second")
    assert list(drop_copies([first, first.replace(" ", "  ") + "more", second])) == [first, second]


def test_a_document_that_is_among_the_shipped_texts_is_left_out():
    shipped = read_shipped_lines()
    document = next(SHIPPED_TEXTS.glob("*.txt")).read_text("utf-8")[:20_000]
    assert is_shipped("# a heading\n" + document, shipped)
    assert not is_shipped(make_text("another"), shipped)
    assert choose_excerpts([document, make_text("another", 3)], 5, seed=0) == [make_text("another", 3)]
