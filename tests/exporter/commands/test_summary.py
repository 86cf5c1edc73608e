"""What an export prints of the bundle that it made."""

from shortlist_exporter.commands.summary import describe_cost, list_values


def test_values_of_many_numbers_are_left_out():
    assert list_values({"promise": 0.99, "effort": ((0.5, -3.0),), "opened": 8}) == "promise=0.99, opened=8"
    assert list_values({"effort": ()}) == "none"


def test_a_head_that_costs_more_than_dense_says_how_many_times_as_much():
    assert [describe_cost(share) for share in (0.0125, 1.0, 1.25)] == [
        "1/80.0 of dense",
        "1.0 times dense",
        "1.2 times dense",
    ]
