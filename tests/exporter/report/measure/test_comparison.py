"""Options of a head are compared on as many rows of a sample as its size affords."""

from types import SimpleNamespace

import numpy as np
import pytest
from shortlist_exporter.report.measure.comparison import LEAST_SHARED_ROWS, SHARED_ROWS, count_shared_rows
from shortlist_exporter.report.measure.samples import Sample


@pytest.mark.parametrize(
    ("classes", "rows", "shared"),
    [
        (1_000, 5_000, SHARED_ROWS),
        (1_000, 700, 700),
        (131_072, 5_000, 512),
        (3_000_000, 5_000, LEAST_SHARED_ROWS),
        (3_000_000, 20, 20),
    ],
)
def test_fewer_rows_of_larger_layers_are_compared(classes, rows, shared):
    head = SimpleNamespace(manifest=SimpleNamespace(classes=classes))
    assert count_shared_rows(head, Sample("a", np.zeros((rows, 1), np.float32), None)) == shared
