"""What an export prints of the bundle that it made."""

from shortlist_exporter.commands.summary import list_values


def test_values_of_many_numbers_are_left_out():
    assert list_values({"promise": 0.99, "effort": ((0.5, -3.0),), "opened": 8}) == "promise=0.99, opened=8"
    assert list_values({"effort": ()}) == "none"
