"""The k best classes of a whole layer out of the k best of each of its shards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shortlist.core.results import PlanResult, join_weights
from shortlist.plans.common.biased import rank_by_weighted_logits


def merge_results(shards: Sequence[PlanResult], k: int) -> PlanResult:
    """The k best classes of B rows, of shards that share no class.

    shards: each row's min(k, V_s) best classes of each shard with ids of the whole layer, -1 where a shard has fewer,
    and the log of the sum of exp(logit) over the shard. Equal scores are ordered by id. The log-normaliser is the log
    of the sum of all shards' sums, log sum_s exp(log Z_s), so that log-probabilities are those of the whole layer; what
    an estimated one is off by is at most the largest error of a shard's. The risk is None: a shard's says how many of
    its own k best it misses, most of which are not among the k best of all.
    """
    ids = np.concatenate([shard.ids for shard in shards], axis=1)
    logits = np.concatenate([shard.logits for shard in shards], axis=1)
    weights = np.concatenate([np.zeros_like(s.logits) if s.weights is None else s.weights for s in shards], axis=1)
    order = rank_by_weighted_logits(ids, logits, weights)[:, :k]
    normalizers = np.stack([shard.log_normalizer.astype(np.float64) for shard in shards])
    has_weights = join_weights(list(shards)) is not None
    return PlanResult(
        np.take_along_axis(ids, order, axis=1),
        np.take_along_axis(logits, order, axis=1),
        np.logaddexp.reduce(normalizers, axis=0).astype(np.float32),
        np.sum([shard.scored for shard in shards], axis=0, dtype=np.int32),
        np.take_along_axis(weights, order, axis=1) if has_weights else None,
    )
