import pytest
from shortlist.bundle.names import Names
from shortlist.errors import BadInput
from shortlist_exporter.playground.answers import make_side
from shortlist_exporter.playground.heads import find_texts
from shortlist_exporter.playground.words import MAX_LABEL_CHARS, Words, shorten

from tests.support.layers import CLASSES, make_dense, make_head

pytestmark = pytest.mark.slow

LABELS = ["the", " the", "The", "12", "a, b", '"', "", "\n", None]


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["the"], [0, 1]),
        ([" the "], [0, 1]),
        (['"the"'], [0]),
        (['" the"'], [1]),
        (["The", "2"], [2, 2]),
        (["12"], [12]),  # a number is the class of that number
        (['"12"'], [3]),
        (['"a, b"'], [4]),
        (['"'], [5]),
        (["", "  "], None),
        ([], None),
    ],
)
def test_classes_by_number_label_or_label_in_quotes(head, names, ids):
    assert Words().find_ids(head, LABELS, names) == ids


@pytest.mark.parametrize("name", ["absent", '"The "', '"absent"', "1" * 5000])
def test_an_unknown_word_is_refused(head, name):
    with pytest.raises(BadInput, match="no class of lm is called"):
        Words().find_ids(head, LABELS, [name])


def test_without_labels_there_are_numbers_alone(head):
    assert Words().find_ids(head, None, ["7"]) == [7]
    with pytest.raises(BadInput, match="lm has no labels: name classes by their numbers, not 'the'"):
        Words().find_ids(head, None, ["the"])


@pytest.fixture(scope="module")
def head_of_items(tmp_path_factory):
    """A head whose classes have names alone."""
    names = Names.make([f"item {number}" for number in range(CLASSES)])
    return make_head(tmp_path_factory.mktemp("names"), make_dense(), method="full", options={}, names=names)


def test_names_stand_in_for_labels(head_of_items):
    assert Words().find_ids(head_of_items, None, ["item 7", '"item 12"', "3"]) == [7, 12, 3]
    with pytest.raises(BadInput, match="no class of lm is called 'item x'"):
        Words().find_ids(head_of_items, None, ["item x"])
    texts = find_texts(head_of_items, None)
    assert [c.label for c in make_side([7, 3, -1], [-0.5, -1.0, None], [], texts).candidates] == ["item 7", "item 3"]


def test_labels_are_shortened():
    assert shorten(None) is None
    assert shorten("x" * MAX_LABEL_CHARS) == "x" * MAX_LABEL_CHARS
    assert shorten("x" * (MAX_LABEL_CHARS + 1)) == "x" * (MAX_LABEL_CHARS - 1) + "\N{HORIZONTAL ELLIPSIS}"
