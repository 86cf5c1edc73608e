"""Bounds by int8: their integers stay within what processors add up."""

from shortlist_exporter.graphs import bounds


def test_digits_never_saturate_sixteen_bits():
    most = bounds.DIGIT_LEVELS + 1 + bounds.DIGIT_LEVELS
    assert 2 * most * bounds.INT8_LEVELS < 1 << 15
    assert bounds.SECOND_DIGIT_FACTOR == 2 * bounds.DIGIT_LEVELS, "half a first step is at most a second digit"
