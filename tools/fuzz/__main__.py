"""Fuzzing of the service.

  python -m tools.fuzz bodies    mutated valid requests through the codec and a small head
  python -m tools.fuzz openapi   schemathesis over our own OpenAPI document, against a real server
  python -m tools.fuzz tcp       raw bytes at a real server
  python -m tools.fuzz bundles   mutated bundles of every method, their hashes right, loaded and queried
  python -m tools.fuzz answers   heads of every method on hard layers, against brute force in float64
  python -m tools.fuzz all       all of them, one after the other

Exit code 1 where anything is wrong; bodies that failed are written to build/fuzz/.
"""

from __future__ import annotations

import argparse
import sys

KINDS = ("bundles", "bodies", "openapi", "tcp", "answers")


def make_parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    whole = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__, formatter_class=shape)
    add = whole.add_argument
    add("kind", nargs="?", default="all", choices=(*KINDS, "all"))
    add("--count", type=int, default=1_000_000, help="bodies (default: %(default)s)")
    add("--answers", type=int, default=200_000, help="answers, one for each row of a call (default: %(default)s)")
    add("--seconds", type=int, default=60, help="of openapi and of tcp each (default: %(default)s)")
    add("--bundles", type=int, default=10_000, help="mutated bundles (default: %(default)s)")
    add("--seed", type=int, default=0, help="another seed, other requests (default: %(default)s)")
    add("--first", type=int, default=0, help="number of the first body, bundle or head (default: %(default)s)")
    add("--workers", type=int, default=1, help="processes for bodies, bundles and answers (default: %(default)s)")
    return whole


def run(kind: str, args: argparse.Namespace) -> bool:
    """Run one kind of fuzzing; returns True if nothing was wrong."""
    if kind == "bundles":
        from .bundles import run as bundles

        outcomes = bundles.run(args.bundles, args.seed, args.first, args.workers)
        bundles.show(outcomes)
        return not outcomes.failures
    if kind == "bodies":
        from . import bodies

        report = bodies.run(args.count, args.seed, args.first, args.workers)
        bodies.show(report)
        return not report.list_wrong()
    if kind == "openapi":
        from . import openapi

        return openapi.main(args.seconds, args.seed)
    if kind == "answers":
        from .answers import run as answers

        examined = answers.run(args.answers, args.seed, args.first, args.workers)
        answers.show(examined)
        return not examined.failures
    from . import tcp

    return tcp.main(args.seconds, args.seed)


def main() -> int:
    """Run each kind, whatever the result of the others."""
    args = make_parser().parse_args()
    results = [run(kind, args) for kind in (KINDS if args.kind == "all" else (args.kind,))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
