"""How long heads take on more contexts."""

from shortlist_exporter.tuning.pace import Pace
from shortlist_exporter.tuning.space import (
    Build,
)


def test_what_a_rung_takes():
    pace, one, other = Pace([100, 300, 900]), Build("svd", (("width", "8"),)), Build("svd", (("width", "9"),))
    assert pace.expect(one, 0) == 0
    pace.note(one, 0, 10.0)
    assert pace.expect(other, 0) == 10
    assert pace.expect(Build("l2s"), 0) == 0
    assert [pace.expect(one, rung) for rung in (1, 2)] == [20, 40]
    assert pace.expect_rest(one) == 60
    pace.note(one, 1, 15.0)
    assert pace.expect_rest(one) == 30
    assert pace.expect(other, 1) == 15
