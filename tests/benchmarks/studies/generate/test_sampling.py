"""What a draw costs: a ratio for each temperature."""

from benchmarks.studies.generate.sampling import TEMPERATURES, measure_sampling
from tests.support.layers import make_contexts, make_dense, make_head


def test_a_ratio_for_each_temperature(tmp_path):
    head = make_head(tmp_path, make_dense(), make_contexts(), method="full", options={})
    ratios = measure_sampling(head, make_contexts(60, seed=7).contexts)
    assert set(ratios) == set(TEMPERATURES)
    assert min(ratios.values()) > 0
