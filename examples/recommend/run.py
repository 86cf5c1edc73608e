"""A recommender trained, exported, served, and asked by the names of its items; see docs/recommend.md.

  python -m examples.recommend.run                       on MovieLens's 100,000 ratings
  python -m examples.recommend.run --interactions FILE   on yours: tab-separated, user_id, item_id, timestamp

Each user's last item tests, the one before it tells when to stop training. The server bans what a user has taken. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import shortlist
import torch
from rich.console import Console
from rich.table import Table
from shortlist.bundle.names import Names
from shortlist.cli.arguments import parse_natural_int, parse_positive_int
from shortlist.errors import ShortlistError
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.core.types import Progress
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

from examples.demo import run_server

from .evaluate import DEPTHS, Figures, measure, recommend
from .interactions import Histories, find_packaged_interactions, read_histories, read_titles
from .model import Recommender, Shape
from .train import HELD_OUT_ITEMS, Plan, compute_contexts, compute_users, train_model

MODEL = "items"
SHOWN_USERS, SHOWN_ITEMS = 3, 5

console = Console(highlight=False)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interactions", type=Path, metavar="FILE", help="default: MovieLens, of package recbole")
    parser.add_argument("--out", type=Path, default=Path("build/recommend"), help="default: %(default)s")
    parser.add_argument(
        "--dim", type=parse_positive_int, default=Shape.dim, help="of items and users (default: %(default)s)"
    )
    parser.add_argument(
        "--length", type=parse_positive_int, default=Shape.length, help="last items looked at (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=parse_natural_int, default=Plan.epochs, help="at most (default: %(default)s)")
    parser.add_argument("--threads", type=parse_positive_int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> int:
    """Train, export, serve, measure; 1 with one sentence where something fails."""
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    try:
        path = args.interactions or find_packaged_interactions()
        print(json.dumps(run_example(args, read_histories(path), read_titles(path))))
    except ShortlistError as error:
        print(f"recommend: {error}", file=sys.stderr)
        return 1
    return 0


def run_example(args: argparse.Namespace, histories: Histories, titles: dict[str, str]) -> dict[str, object]:
    """All of it; returns the JSON line."""
    start = time.monotonic()
    with progress_bar("training") as report:
        shape = Shape(len(histories.items), dim=args.dim, length=args.length)
        model = train_model(histories, shape, Plan(epochs=args.epochs), report)
        export_items(model, histories, titles, args.out / MODEL / "1", report)
    seen = histories.cut(1)
    users, names = compute_users(model, seen), [[histories.items[item] for item in taken] for taken in seen]
    targets = [histories.items[item] for item in histories.targets(1)]
    k = min(max(DEPTHS), len(histories.items) - max(map(len, seen)))
    with run_server(args.out) as url, shortlist.Client(url) as client:
        served, exact = (recommend(client, MODEL, users, names, k, exact=flag) for flag in (False, True))
    show_users(histories, names, served, titles)
    depths = [depth for depth in DEPTHS if depth <= k]
    both = measure(served, exact, targets, depths), measure(exact, exact, targets, depths)
    show_figures(*both)
    console.print(f"to ask again by names: shortlist serve {args.out}, model {MODEL}", soft_wrap=True, markup=False)
    return summarize(histories, *both, time.monotonic() - start)


def export_items(
    model: Recommender, histories: Histories, titles: dict[str, str], out: Path, progress: Progress
) -> None:
    """Export the model's layer of items, fitted to its users' vectors after each of the items that taught it."""
    shutil.rmtree(out, ignore_errors=True)
    dense = Dense(np.ascontiguousarray(model.weight.detach().numpy()))
    contexts = Contexts(compute_contexts(model, histories.cut(HELD_OUT_ITEMS)))
    labels = [titles.get(item, item) for item in histories.items]
    names = Names.make(histories.items)
    export(dense, contexts, out, Request("grouped", labels=labels, names=names, report=False), progress)


def show_users(histories: Histories, names: list[list[str]], served: np.ndarray, titles: dict[str, str]) -> None:
    """The last items that some users took, and what the server recommends to them."""
    for row in range(0, len(served), -(-len(served) // SHOWN_USERS)):
        table = Table(title=f"user {histories.users[row]}", title_justify="left", min_width=80)
        for column in ("took last", "is recommended"):
            table.add_column(column)
        for pair in zip(names[row][-SHOWN_ITEMS:], served[row][:SHOWN_ITEMS], strict=False):
            table.add_row(*(titles.get(item, item) for item in pair))
        console.print(table)


def show_figures(served: Figures, exact: Figures) -> None:
    """A table of both."""
    table = Table("", "served", "exact", title="what was taken is banned, all other items are ranked", min_width=60)
    table.add_row("NDCG@10", f"{served.ndcg:.4f}", f"{exact.ndcg:.4f}")
    for k in served.hits:
        table.add_row(f"recall@{k} of the next item", f"{served.hits[k]:.4f}", f"{exact.hits[k]:.4f}")
    for k, share in served.agreement.items():
        table.add_row(f"recall@{k} of the exact {k}", f"{share:.4f}", "1")
    console.print(table)


def summarize(histories: Histories, served: Figures, exact: Figures, seconds: float) -> dict[str, object]:
    """The JSON line."""
    return {
        "users": len(histories.users),
        "items": len(histories.items),
        "ndcg_10": round(served.ndcg, 4),
        "ndcg_10_exact": round(exact.ndcg, 4),
        "recall": {k: round(share, 4) for k, share in served.hits.items()},
        "recall_exact": {k: round(share, 4) for k, share in exact.hits.items()},
        "agreement": {k: round(share, 5) for k, share in served.agreement.items()},
        "seconds": round(seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
