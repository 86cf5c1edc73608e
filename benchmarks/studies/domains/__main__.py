"""Our head and its peers on kinds of text that they were not fitted on: `make bench-domains`.

  python -m benchmarks.studies.domains --data DATA

Everything is fitted on the shipped texts (examples/text): our `grouped` at its defaults, ScaNN's tree on the layer's
rows and in the basis of contexts, int8 rows in ONNX Runtime; each peer at its first setting with P@1 .99 on WikiText's
test text. Then they are asked about every kind: documents of one genre and one language, at least 10,000 rows of at
least 20 documents. Lost: dense's best class is not the first at k = 1, per 1,000 rows of the kind, by that class's
probability. Intervals are 95 %, by document. Times are at batch 1, by one thread, all of one k in one interleaved run;
times dense is of means. What was captured, exported and found stays in the cache: a run that was stopped goes on.

The last line is JSON. lost_sure: lost rows with p >= .5 per 1,000, of the worst kind. speedup: times dense at k = 1,
for which P@1 is, and with _5 at k = 5, for which P@5 is; b32: by 32 rows. speedup_worst, p99_worst: the least over
kinds. best_peer: the fastest with P@1 .99 on WikiText. kinds_under: kinds under P@1 .99 or P@5 .98.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from shortlist.errors import BadInput
from shortlist.evaluation.timing import Call, find_fastest

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.dense import open_spellings
from benchmarks.common.truth import Truth
from benchmarks.datasets.base import DataSet
from benchmarks.datasets.kinds.load import load_kinds
from benchmarks.sweep.harness import limit_threads
from benchmarks.sweep.heads import PROMISED_HEAD, open_heads

from .contenders import OURS, Asked, make_ours, tune_peers
from .inputs import DOMAINS, WIKITEXT, Domain, choose_recipes, load_layer, make_domain
from .measure import TIMED_COUNTS, Pace, make_call, measure_finding, time_kind
from .picture import plot_kinds
from .summary import Speeds, find_best_peer, make_table, summarize

MODULE = "benchmarks.studies.domains"
LARGE_BATCH = 32
LARGE_ROWS = 2048  # timed at that batch


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="contexts, bundles, answers and the picture stay here")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with wikitext-2/ and ptb/; required")
    parser.add_argument("--kinds", nargs="+", default=DOMAINS, metavar="NAME", help="kinds of text (default: twelve)")
    parser.add_argument("--rows", type=int, default=1000, help="rows of a kind that are timed (default: %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="our head and dense alone")
    return parser.parse_args()


def load_domains(args: argparse.Namespace, folder: Path) -> tuple[DataSet, dict[str, Domain]]:
    """The layer with the texts to fit on, and the kinds that can be had; raises BadInput without WikiText."""
    recipes = choose_recipes(args.kinds)
    dense, fit = load_layer(folder)
    kinds = load_kinds(args.data, args.cache, recipes=recipes)
    domains = {kind.name: make_domain(kind, dense, folder / "truth") for kind in kinds}
    if WIKITEXT not in domains:
        raise BadInput("contenders are tuned on WikiText's test text: give --data, a folder with wikitext-2/test.txt")
    tuned = domains[WIKITEXT].truth
    return DataSet("shipped texts", dense, fit, Truth(tuned.contexts, tuned.best)), domains


def open_contenders(args: argparse.Namespace, folder: Path, data: DataSet, domains: dict[str, Domain]) -> list[Asked]:
    """Our head and the peers that can be had; prints a sentence for each that cannot."""
    head = open_heads(data, folder / "repository", 1, [PROMISED_HEAD])[PROMISED_HEAD]
    peers = [] if args.no_peers else list(tune_peers(data.dense, data.fit, domains[WIKITEXT].truth, 1))
    for sentence in peers:
        if isinstance(sentence, str):
            print(sentence)
    return [make_ours(head), *(peer for peer in peers if isinstance(peer, Asked))]


def open_dense(data: DataSet, folder: Path, domain: Domain, batch: int, k: int) -> Call:
    """The spelling of dense that is fastest at this batch."""
    spellings = {name: make_call(topk, k) for name, topk in open_spellings(data.dense, folder, 1).items()}
    return spellings[find_fastest(spellings, domain.truth.contexts, batch)]


def time_contenders(
    args: argparse.Namespace, folder: Path, data: DataSet, domains: dict[str, Domain], asked: list[Asked], k: int
) -> Speeds:
    """Times of `asked`, ours first, by contender and kind, and our times dense at the large batch."""
    paces: dict[str, dict[str, Pace]] = {one.name: {} for one in asked}
    calls = {one.name: make_call(one.topk, k) for one in asked}
    dense = open_dense(data, folder / "dense", domains[WIKITEXT], 1, k)
    for name, domain in domains.items():
        for contender, pace in time_kind({"dense": dense, **calls}, domain.truth.contexts, args.rows, 1).items():
            paces[contender][name] = pace
    large = {"dense": open_dense(data, folder / "dense", domains[WIKITEXT], LARGE_BATCH, k), OURS: calls[OURS]}
    many = time_kind(large, domains[WIKITEXT].truth.contexts, LARGE_ROWS, LARGE_BATCH)[OURS].times_dense
    return Speeds(paces, many)


def run_study(args: argparse.Namespace) -> None:
    """Measure; print a table for each contender and the JSON line; draw the picture."""
    folder = args.cache / "domains"
    data, domains = load_domains(args, folder)
    with limit_threads(1, own_threads=False):
        asked = open_contenders(args, folder, data, domains)
        findings = {
            one.name: {name: measure_finding(one, domain, folder / "findings") for name, domain in domains.items()}
            for one in asked
        }
        speeds = {k: time_contenders(args, folder, data, domains, asked, k) for k in TIMED_COUNTS}
    mixture = {name for name, domain in domains.items() if domain.kind.in_mixture}
    for name, found in findings.items():
        paces = [one.paces[name] for one in speeds.values()]
        Console(width=170).print(make_table(name, found, paces, mixture))
    one, five = speeds.values()
    plot_kinds(findings, one.paces, folder / "domains.png")
    print(folder / "domains.png")
    print(json.dumps(summarize(findings, one, five, find_best_peer(asked[1:], one.paces))))


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
