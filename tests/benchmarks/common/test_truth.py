import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.common.truth import compute_best, load_truth


def test_truth_is_that_of_float64(tmp_path):
    random = np.random.default_rng(0)
    weight = random.standard_normal((300, 8)).astype(np.float32)
    weight[150:] = weight[:150] * np.float32(1 + 2e-7)  # float32 products can hardly tell these pairs apart
    dense = Dense(weight, padded=np.array([7, 299]))
    contexts = random.standard_normal((100, 8)).astype(np.float32)
    scores = contexts.astype(np.float64) @ weight.astype(np.float64).T
    scores[:, dense.padded] = -np.inf
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    assert (compute_best(dense, contexts).ids == expected).all()


def test_stored_truth_holds_distinct_rows_once(tmp_path):
    dense = Dense(np.eye(12, dtype=np.float32))
    contexts = np.repeat(np.eye(12, dtype=np.float32)[:6], 2, axis=0)
    targets = np.repeat(np.arange(6), 2)
    truth = load_truth(tmp_path / "t.safetensors", dense, contexts, targets)
    assert len(truth.contexts) == 6
    assert (truth.ids[:, 0] == truth.targets).all()
    again = load_truth(tmp_path / "t.safetensors", dense, contexts[:0], None)
    assert (again.ids == truth.ids).all()
    assert (again.contexts == truth.contexts).all()
