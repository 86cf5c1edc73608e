"""Load on the HTTP service, over the loopback interface of this machine alone.

  python -m benchmarks.http bench              requests/s beside a bare echo and a hand-written route
  python -m benchmarks.http client             our clients beside a bare socket that sends the same bytes
  python -m benchmarks.http soak               twice the capacity for ten minutes; every answer is checked
  python -m benchmarks.http changes            items that come and go under query load, and servers that are killed
  python -m benchmarks.http peers --bundle B   beside Triton, MLServer and LitServe with the same dense layer

Servers run on one core and the load on another. Rates are requests a second, latencies us or ms as named, memory
MiB. Each command ends with a table; the last line of bench, client, soak and changes is JSON.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

from shortlist.errors import BadInput

from benchmarks.common.command import run_command

HTTP_CACHE_FOLDER = Path("build/bench/http")


def make_http_parser() -> argparse.ArgumentParser:
    """The parser with its commands; a command's help is the docstring of the function that adds its flags."""
    shape = argparse.RawDescriptionHelpFormatter
    whole = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__, formatter_class=shape)
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, configure in COMMANDS.items():
        text = inspect.cleandoc(configure.__doc__ or "")
        command = commands.add_parser(name, help=text.partition("\n")[0], description=text, formatter_class=shape)
        command.add_argument(
            "--cache",
            type=Path,
            default=HTTP_CACHE_FOLDER,
            metavar="DIR",
            help="bundles and logs stay here (default: %(default)s)",
        )
        configure(command)
    return whole


def add_bench_flags(command: argparse.ArgumentParser) -> None:
    """Requests/s and latency of one row, beside a bare echo and a hand-written route.

    The heads' arithmetic is replaced by a constant; everything else is the server as it is. wrk posts one row of
    576 floats over 1, 16 and 128 keep-alive connections. infer_ratio is /v2 binary infer over a bare ASGI echo of
    the same bytes, json_ratio /v1/topk over a FastAPI route written by hand, infer_key_ratio and json_key_ratio a
    server that asks for API keys over one that does not, all at 16 connections.
    """
    add_load_flags(command, rounds=5, seconds=3)


def add_client_flags(command: argparse.ArgumentParser) -> None:
    """Microseconds of a call of our clients, beside a bare socket that sends the same bytes.

    A real server of a small dense head, 1,000 classes by 576, whose answer to one row takes under 100 us. Each client
    asks in turns with a socket, one call each; ratios are of medians. client_ratio: the blocking client, one row.
    async_ratio: the client for asyncio. batch16_ratio: 16 rows. unix_ratio: over a Unix socket, beside a bare Unix
    socket. import_ms: of `import shortlist` and a first answer, behind `import numpy`, in processes of their own.
    """
    add = command.add_argument
    add("--rounds", type=parse_positive, default=3000, help="calls of each (default: %(default)s)")
    add("--k", type=parse_positive, default=5, help="classes in an answer (default: %(default)s)")


def add_load_flags(command: argparse.ArgumentParser, rounds: int, seconds: int) -> None:
    """Add the flags of how wrk loads the servers, with the defaults of the turns and of a turn's seconds."""
    add = command.add_argument
    add("--rounds", type=parse_positive, default=rounds, help="turns of every server (default: %(default)s)")
    add(
        "--seconds",
        type=parse_positive,
        default=seconds,
        help="of every run of wrk, whole seconds (default: %(default)s)",
    )
    add("--k", type=parse_positive, default=10, help="classes in an answer (default: %(default)s)")


def add_soak_flags(command: argparse.ArgumentParser) -> None:
    """Twice the capacity, with clients that misbehave; exit code 1 where a promise is broken.

    The capacity is measured by a closed loop first. Then requests of 1 to 16 rows and k of 1, 5 or 10 come at a
    fixed rate, whether or not earlier ones are answered; latency counts from when a request was due. Beside them
    others send slowly, vanish, read no answers, flood, send bombs of gzip or ask for other protocols. Promised: only
    429 (with Retry-After), 503 and 504 as failures, every answer as the head gives it offline, p99 of admitted requests
    under the deadline, half of the capacity for those who behave, /healthz within 100 ms at p99, memory flat.
    """
    add = command.add_argument
    add("--bundle", type=Path, metavar="DIR", help="<repository>/<name>/<version> (default: a synthetic SVD head)")
    add(
        "--seconds",
        type=parse_positive,
        default=600,
        help="of load at the fixed rate (default: %(default)s)",
    )
    add("--quick", action="store_true", help="half a minute in all, for tests")
    add("--deadline-ms", type=parse_positive, default=250, help="timeout of requests, ms (default: %(default)s)")
    add("--factor", type=float, default=2.0, help="the load over the capacity (default: %(default)s)")
    add("--connections", type=parse_positive, default=1024, help="most open connections (default: %(default)s)")


def add_changes_flags(command: argparse.ArgumentParser) -> None:
    """Items that are added and removed under query load; exit code 1 where a promise is broken.

    A head of named items answers single rows at a fixed rate, first without changes, then with them; latency counts
    from when a query was due. Half of the queries ask for what was changed a short while ago. Then the server is killed
    again and again while it is changed. Promised: no acknowledged change is lost, each is in the next answer and within
    a second, no removed item is answered, p99 of queries at most twice that without changes.
    """
    add = command.add_argument
    add("--classes", type=parse_positive, default=100_000, help="items of the export (default: %(default)s)")
    add("--seconds", type=parse_positive, default=20, help="of each part; 600 for a whole run (default: %(default)s)")
    add("--queries", type=parse_positive, default=200, help="a second (default: %(default)s)")
    add("--changes", type=parse_positive, default=1000, help="items a second (default: %(default)s)")
    add("--batch", type=parse_positive, default=10, help="items changed by a request (default: %(default)s)")
    add("--kills", type=int, default=5, help="of servers, at random moments (default: %(default)s)")
    add("--removed", type=int, default=0, help="items of the export gone before the changes (default: %(default)s)")


def add_peers_flags(command: argparse.ArgumentParser) -> None:
    """Requests/s and p99 beside Triton, MLServer and LitServe.

    All answer single rows with the same dense layer, our service also with its head; wrk posts 64 rows in turn over
    16 connections. Each peer has a virtual environment below build/venvs, made at the first use; one that cannot
    be installed or started is a row that says why. P@1 is against the offline dense answer, before the timing.
    """
    add = command.add_argument
    add("--bundle", type=Path, required=True, metavar="DIR", help="<repository>/<name>/<version>, with dense.onnx")
    add_load_flags(command, rounds=3, seconds=5)
    add(
        "--venvs",
        type=Path,
        default=Path("build/venvs"),
        metavar="DIR",
        help="the peers' environments (default: %(default)s)",
    )
    add("--out", type=Path, metavar="FILE", help="the Markdown table is written here too")


COMMANDS = {
    "bench": add_bench_flags,
    "client": add_client_flags,
    "soak": add_soak_flags,
    "changes": add_changes_flags,
    "peers": add_peers_flags,
}


def parse_positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1")
    return int(text)


def run_http_command(args: argparse.Namespace) -> int:
    """One of the commands; its exit code."""
    if args.command == "bench":
        from .bench import run_bench

        run_bench(args.cache, args.rounds, args.seconds, args.k)
        return 0
    if args.command == "client":
        from .clients import run_clients

        run_clients(args.cache, args.rounds, args.k)
        return 0
    if args.command == "soak":
        from benchmarks.http.soak.run import SoakPlan, run_soak

        if args.factor <= 0:
            raise BadInput(f"--factor is {args.factor:g}: give a number over 0")
        soak = SoakPlan(args.seconds, args.deadline_ms, args.factor, args.connections, args.quick)
        return run_soak(args.cache, args.bundle, soak)
    if args.command == "changes":
        from benchmarks.http.changes.run import ChangePlan, run_changes

        plan_fields = (args.classes, args.seconds, args.queries, args.changes, args.batch, args.kills, args.removed)
        return run_changes(args.cache, ChangePlan(*plan_fields))
    from .peers import run_peers

    run_peers(args.cache, args.bundle, args.venvs, args.rounds, args.seconds, args.k, args.out)
    return 0


def main() -> int:
    """Measure and print; 1 with one sentence where it cannot."""
    args = make_http_parser().parse_args()
    return run_command("benchmarks.http", lambda: run_http_command(args))


if __name__ == "__main__":
    sys.exit(main())
