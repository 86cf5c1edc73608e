"""What a task holds while it waits: the arrays of its query, all of them."""

import numpy as np
import pytest
from shortlist.core.bias import parse_bias
from shortlist.core.draws.sampling import parse_sampling
from shortlist.core.queries import SampleQuery, TopKQuery
from shortlist.server.scheduling.tasks import make_task

ROWS = np.zeros((4, 16), np.float32)
BIAS = parse_bias([dict.fromkeys(range(100), 0.5)] * 4)
QUERIES = {
    "the k best": lambda bias: TopKQuery(ROWS, 3, bias=bias),
    "draws": lambda bias: SampleQuery(ROWS, parse_sampling(4, 1), None, None, bias),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_biases_are_counted(head, kind):
    without, beside = (make_task(head, QUERIES[kind](bias)).argument_bytes for bias in (None, BIAS))
    assert beside - without == BIAS.nbytes == 4 * 100 * 12
