"""A translator whose output layer is a head: in process, over HTTP, beside CTranslate2. `make bench-decoding`.

  python -m benchmarks.studies.decoding --data DATA

Trains the translator of the examples on DATA/enja (English to Japanese) where it is missing, exports its output layer,
and translates the dev and test sentences with beams 1 and 5. Heads are fitted to contexts of training text, and told
apart on other training sentences. The last line is JSON. bleu_dense, bleu_head: BLEU of test with the dense layer and
with the chosen head, beam 5. hypotheses_changed: share of the dev and test sentences whose best hypothesis the head
changes. layer_macs_ratio: times fewer multiply-adds. http_ratio: time of the test set over HTTP, over in process.
plain_differences: sentences whose words differ from a plain float64 search, of both beams.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.common.command import make_parser, run_command

from .causes import count_causes
from .heads import DENSE, Trial, choose_trial
from .macs import measure_macs
from .measure import System, check_plainly, measure_beam, translate_by_peer
from .peers import Peers
from .results import WIDE, Findings, print_results
from .searches import take_rows
from .study import COUNTED_K, COUNTED_ROWS, MOST_MACS, Study
from .task import open_task

MODULE = "benchmarks.studies.decoding"
BEAMS = (1, WIDE)


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="the translator, contexts and bundles stay here")
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="folder with enja/")
    add("--threads", type=int, default=2, help="threads of the training (default: %(default)s)")
    add("--peers", type=Path, default=Path("build/venvs/translators/bin/python"), help="Python of CTranslate2")
    return parser.parse_args()


def run_study(args: argparse.Namespace) -> None:
    """Measure and print the tables and the JSON line."""
    folder = args.cache / "decoding"
    peers = Peers(args.peers, folder / "peers")
    study = Study(open_task(args.data, folder / "model", args.threads), folder)
    chosen = study.choose_heads()
    best = choose_trial(list(chosen.values()), MOST_MACS).method
    systems = measure_heads(study, chosen) + measure_peers(study, peers)
    causes = count_causes(study, study.open(best, chosen[best].place), systems[0].beams[WIDE].tokens, WIDE)
    plain = [check_plainly(study, beam) for beam in BEAMS]
    print_results(study, peers, Findings(systems, best, causes, plain))


def measure_heads(study: Study, chosen: dict[str, Trial]) -> list[System]:
    """Dense and the chosen heads on dev and test; multiply-adds are of the rows that dense's search asks for."""
    asked = study.search(study.full, study.sentences, WIDE, keep=True).meter.contexts
    rows = take_rows(asked, COUNTED_ROWS, 0)
    heads = {DENSE: study.full} | {method: study.open(method, trial.place) for method, trial in chosen.items()}
    systems = []
    for name, head in heads.items():
        system = System(name, 1 / measure_macs(head, rows, COUNTED_K))
        for beam in BEAMS:
            system.beams[beam] = measure_beam(study, head, beam)
            print(f"{name}, beam {beam}: {system.beams[beam].figures}", flush=True)
        systems.append(system)
    return systems


def measure_peers(study: Study, peers: Peers) -> list[System]:
    """CTranslate2, without and with its list of words a sentence."""
    return [
        System(name, 1.0, {beam: translate_by_peer(study, peers, beam, use_vmap=use_vmap) for beam in BEAMS})
        for name, use_vmap in (("CTranslate2", False), ("CTranslate2, vmap", True))
    ]


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
