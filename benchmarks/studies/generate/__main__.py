"""Heads inside `generate` of transformers: `make bench-generate`.

  python -m benchmarks.studies.generate --data DATA

For SmolLM2-135M and Gemma-3-270M, body and head in float32 on the CPU: tokens a second with the model's own output
layer, with a `grouped` head at its defaults, fitted on the shipped texts, and with a constant in the layer's place,
which is the most that a head could reach. They generate in turns; a ratio is the median of the turns' ratios. One and
two threads, batch 1 and 4, greedy and beam 4, with k = 1 and k = 8, after prompts of ten kinds of text. Then 32 tokens,
16 with beams, after 200 such prompts: how many continuations are those of the model alone. Last, what a draw costs.
Models, heads and tokens are kept: a run that was stopped goes on, and speeds are measured again each time.

The last line is JSON. ceiling_share: tokens a second over the constant's, of the worst cell. ratio: over those of the
model alone, the median of the cells. exact_same, beam_same, bounded_beam_same: share of the continuations that are the
model's own, of exact answers: greedy, and beam 4 with log-probabilities that are exact, and bounded. greedy_same,
greedy_same_999: the same of promises .99 and .999. sampling_ratio: the time of a draw over that of an exact answer, at
the worse of temperatures .7 and 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from shortlist.head import Head
from shortlist.runtime.processor import read_processor_name
from shortlist_exporter.export.request import Request
from shortlist_exporter.inputs.sources import load_contexts
from shortlist_exporter.inputs.splits import split_held_out

from benchmarks.common.command import make_parser, run_command
from benchmarks.sweep.harness import limit_threads

from .identity import Prompts
from .models import RECIPES, Subject, open_subject
from .prompts import choose_texts, make_prompts
from .same import Finding, compare_tokens
from .sampling import measure_sampling
from .speed import THREADS, Cell, Pace, list_cells, mix_kinds, time_cell
from .summary import Result, describe_findings, make_pace_table, summarize

MODULE = "benchmarks.studies.generate"
PARTS = ("speed", "tokens", "sampling")
GROUPED, FULL = Request(method="grouped", threads=1), Request(method="full", threads=1, certificate=False)
SAMPLED_MODEL = "smollm2"
console = Console(width=120, highlight=False)


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="models, bundles and tokens stay here")
    names = [recipe.name for recipe in RECIPES]
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with wikitext-2/, ptb/ and enja/ for prompts")
    parser.add_argument("--models", nargs="+", default=names, choices=names, help="which (default: all)")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="what is measured (default: all)")
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS, help="of the speeds (default: 1 and 2)")
    return parser.parse_args()


def measure_speed(args: argparse.Namespace, subject: Subject) -> dict[Cell, Pace]:
    """Tokens a second of every cell."""
    head = subject.open_head(GROUPED, 1)  # torch's other threads wait for work in a busy loop
    prompts, paces = mix_kinds(read_prompts(args, subject)), {}
    for cell in list_cells(args.threads):
        paces[cell] = time_cell(subject.model, head, cell, prompts)
        print(f"{subject.name}, {cell.label}: {paces[cell].ceiling_share:.3f} of the constant's", flush=True)
    return paces


def read_prompts(args: argparse.Namespace, subject: Subject) -> Prompts:
    """The prompts by kind, in the model's tokens."""
    model = subject.language_model
    return make_prompts(choose_texts(args.data, args.cache), model.tokenizer, model.prefix)


def compare_continuations(args: argparse.Namespace, subject: Subject) -> dict[str, Finding]:
    """Whose continuations are the model's own."""
    head, full = (subject.open_head(one, max(THREADS)) for one in (GROUPED, FULL))
    return compare_tokens(subject, head, full, read_prompts(args, subject))


def time_draws(subject: Subject) -> dict[float, float]:
    """What draws cost by temperature, on contexts that the head was not fitted on; by one thread."""
    head: Head = subject.open_head(GROUPED, 1)
    contexts = load_contexts(subject.folder / "fit.safetensors")
    with limit_threads(1, own_threads=False):
        return measure_sampling(head, contexts.contexts[split_held_out(contexts, seed=0)[1]])


def measure(args: argparse.Namespace, subject: Subject) -> Result:
    """All parts of one model; prints their tables."""
    paces = measure_speed(args, subject) if "speed" in args.parts else {}
    if paces:
        console.print(make_pace_table(subject.name, paces))
    findings = compare_continuations(args, subject) if "tokens" in args.parts else {}
    print("\n".join(describe_findings(findings)))
    draws = time_draws(subject) if "sampling" in args.parts and subject.name == SAMPLED_MODEL else {}
    for temperature, ratio in draws.items():
        print(f"a draw at temperature {temperature:g}: {ratio:.2f} times the time of an exact answer")
    return Result(paces, findings, draws)


def run_study(args: argparse.Namespace) -> None:
    """Measure, model by model, and print the JSON line."""
    print(f"processor: {read_processor_name()}", flush=True)
    folder, results = args.cache / "generate", {}
    for recipe in RECIPES:
        if recipe.name in args.models:
            results[recipe.name] = measure(args, open_subject(recipe, folder))
    print(json.dumps(summarize(results)))


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
