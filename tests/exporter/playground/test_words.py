import pytest
from shortlist.errors import BadInput
from shortlist_exporter.playground.words import MAX_LABEL_CHARS, Words, shorten

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


def test_labels_are_shortened():
    assert shorten(None) is None
    assert shorten("x" * MAX_LABEL_CHARS) == "x" * MAX_LABEL_CHARS
    assert shorten("x" * (MAX_LABEL_CHARS + 1)) == "x" * (MAX_LABEL_CHARS - 1) + "\N{HORIZONTAL ELLIPSIS}"
