"""SVD-softmax held against its paper (Shim et al., NIPS 2017): Tables 1, 2 and 4, Figures 2 and 3.

  python -m benchmarks.papers.svd.reproduce --data DATA

Writes docs/svd-softmax.md and its pictures. Needs DATA with wikitext-2/ and ptb/; Table 4's shape is made up, since
its language model is not to be had, and needs 12 GiB of memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from shortlist.evaluation.measurement import COVERAGE_SIZES
from shortlist_exporter.commands.progress import progress_bar
from shortlist_models import FullSoftmax
from shortlist_models.svd import Basis, SVDSoftmax, context_basis, weight_basis
from torch import Tensor

from benchmarks.datasets.registry import DATASETS, DataSet, Place
from benchmarks.papers.common.command import DOCS, make_paper_parser, write_page

from .pictures import draw_heat_map, draw_spectra
from .times import Stages, time_stages

TEST_CONTEXTS = 2000
CONTEXTS_AT_A_TIME = 125
DIM_SHARES = (16, 8, 4, 2)  # d / W; the paper's rule is 8
VIEW_SHARES = (0.0, 0.01, 0.025, 0.05, 0.1)  # N / V; the paper's are .05 and .1

MODULE = "svd.reproduce"

SVD_INTRODUCTION = """# SVD-softmax against its paper

Written by `make reproduce DATA=folder`; do not edit. The algorithm is the paper's Algorithm 1 with previews in
float32; `basis=context` is the same algorithm in another basis. The models differ from the paper's: the paper trained
language models on WikiText-2 (33,278 words) and One Billion Word (800k words), whose training text is not available
here. `ptb` is a 2 x 200 LSTM over 10,000 words, and `smollm2` a transformer over 49,152 word pieces that reads the
test text of WikiText-2.

Figures are means over 2,000 distinct held-out contexts. W and N are the widths of the preview and of the full view; N
= 0 is the preview alone. Z~/Z is the estimated normaliser over the exact one, NLL the negative log-likelihood of the
gold next word, and "top m" how many of the true m best classes are among the head's own m best.

| row of the paper | here |
|---|---|
| Tables 1 and 2, WikiText-2 model | not run: no training text |
| Tables 1 and 2, One Billion Word model | not run: no training text |
| Table 3 (translation) | not run: no trained model |
| Table 4, GPU | not run on a GPU |
"""


@dataclass(frozen=True)
class Cell:
    """One W and N. z: Z~/Z. coverage: by size m, how many of the true top m are in the head's own top m."""

    width: int
    view: int
    z: float
    kl: float
    nll: float
    coverage: dict[int, float]
    cost: float


@dataclass(frozen=True)
class Exact:
    """A chunk's exact logits [b, V] and what follows from them."""

    contexts: Tensor
    targets: Tensor
    logits: Tensor

    @property
    def log_normalizer(self) -> Tensor:
        """The logarithm of Z, the sum of exp(logit) over all classes, [b, 1]."""
        return self.logits.logsumexp(dim=1, keepdim=True)


def measure_grid(data: DataSet, kind: str, report: Callable[[str, int, int], None]) -> tuple[list[Cell], float, Basis]:
    """Every W and N in one basis; the dense head's NLL; and the widest basis."""
    dense = data.dense.module
    widest = compute_widest_basis(kind, dense, data)
    chunks = [compute_exact(dense, data, start) for start in range(0, TEST_CONTEXTS, CONTEXTS_AT_A_TIME)]
    nll = float(torch.cat([compute_nll(chunk.logits, chunk) for chunk in chunks]).mean())
    cells, widths = [], [data.dense.dim // share for share in DIM_SHARES]
    for done, width in enumerate(widths):
        head = SVDSoftmax(dense, narrow_basis(widest, width), 1, quantized=False)
        previews = [head.preview_logits(chunk.contexts) for chunk in chunks]
        cells += [measure_cell(data, chunks, previews, width, round(view * data.dense.classes)) for view in VIEW_SHARES]
        report(f"{data.name}, basis {kind}", done + 1, len(widths))
    return cells, nll, widest


def compute_widest_basis(kind: str, dense: FullSoftmax, data: DataSet) -> Basis:
    """The basis of all d directions."""
    if kind == "weight":
        return weight_basis(dense.weight, data.dense.dim)
    return context_basis(dense.weight, torch.from_numpy(data.fit.contexts), data.dense.dim)


def narrow_basis(basis: Basis, width: int) -> Basis:
    """`basis` cut to its first `width` directions."""
    return Basis(basis.preview[:, :width].contiguous(), basis.projection[:, :width].contiguous(), basis.singular_values)


def compute_exact(dense: FullSoftmax, data: DataSet, start: int) -> Exact:
    """Exact logits of one chunk of test rows."""
    rows = slice(start, min(start + CONTEXTS_AT_A_TIME, TEST_CONTEXTS))
    contexts = torch.from_numpy(data.test.contexts[rows])
    assert data.test.targets is not None
    return Exact(contexts, torch.from_numpy(data.test.targets[rows]), dense.logits(contexts))


def compute_nll(logits: Tensor, chunk: Exact) -> Tensor:
    """[b]: negative log-likelihood of the targets under softmax(logits)."""
    return logits.logsumexp(dim=1) - logits.gather(1, chunk.targets[:, None])[:, 0]


def measure_cell(data: DataSet, chunks: Sequence[Exact], previews: Sequence[Tensor], width: int, view: int) -> Cell:
    """One entry of the grid."""
    z, kl, nll = [], [], []
    shares_by_size: dict[int, list[Tensor]] = {top: [] for top in COVERAGE_SIZES}
    for chunk, preview in zip(chunks, previews, strict=True):
        logits = preview
        if view:
            candidates = preview.topk(view, dim=1).indices
            logits = preview.scatter(1, candidates, chunk.logits.gather(1, candidates))
        z.append((logits.logsumexp(dim=1, keepdim=True) - chunk.log_normalizer).exp())
        log_p, log_q = chunk.logits.log_softmax(dim=1), logits.log_softmax(dim=1)
        kl.append((log_p.exp() * (log_p - log_q)).nan_to_num(0).sum(dim=1))
        nll.append(compute_nll(logits, chunk))
        for top in COVERAGE_SIZES:
            shares_by_size[top].append(count_overlap(logits, chunk.logits, top))
    d, classes = data.dense.dim, data.dense.classes
    cost = (d * width + classes * width + view * d) / (classes * d)
    coverage = {size: average_rows(values) for size, values in shares_by_size.items()}
    return Cell(width, view, average_rows(z), average_rows(kl), average_rows(nll), coverage, cost)


def count_overlap(logits: Tensor, exact: Tensor, top: int) -> Tensor:
    """[b]: how many of the exact top `top` are in the found top `top`."""
    marks = torch.zeros_like(exact, dtype=torch.bool)
    marks.scatter_(1, exact.topk(top, dim=1).indices, value=True)
    return marks.gather(1, logits.topk(top, dim=1).indices).sum(dim=1).float()


def average_rows(parts: Sequence[Tensor]) -> float:
    """The mean over all rows of all chunks."""
    return float(torch.cat(list(parts)).mean())


def format_grid(cells: Sequence[Cell], nll: float) -> str:
    tops = " | ".join(f"top {top}" for top in COVERAGE_SIZES)
    rule = "|---" * (6 + len(COVERAGE_SIZES)) + "|"
    lines = [f"| W | N | Z~/Z | KL, nats | NLL (exact {nll:.4f}) | {tops} | multiply-adds |\n{rule}\n"]
    for cell in cells:
        coverage = " | ".join(f"{cell.coverage[top]:.2f}" for top in COVERAGE_SIZES)
        lines.append(
            f"| {cell.width} | {cell.view:,} | {cell.z:.4f} | {cell.kl:.4f} | {cell.nll:.4f} | {coverage} "
            f"| 1/{1 / cell.cost:.1f} |\n"
        )
    return "".join(lines)


def make_section(name: str, data: DataSet) -> str:
    """Both bases on one data set, with pictures."""
    text = [f"\n## {data.name}: V = {data.dense.classes:,}, d = {data.dense.dim}\n"]
    spectra = {}
    with torch.inference_mode(), progress_bar(data.name) as report:
        for kind in ("weight", "context"):
            cells, nll, basis = measure_grid(data, kind, report)
            spectra[kind] = basis.singular_values.numpy()
            picture = f"pictures/svd-{name}-{kind}.png"
            zs = {(cell.width, cell.view): cell.z for cell in cells}
            draw_heat_map(zs, f"{data.name}, basis {kind}: Z~/Z", DOCS / picture)
            title = "as published" if kind == "weight" else "context-weighted"
            text += [f"\n### basis={kind} ({title})\n\n", format_grid(cells, nll), f"\n![Z~/Z]({picture})\n"]
    picture = f"pictures/svd-{name}-spectrum.png"
    draw_spectra(spectra, data.name, DOCS / picture)
    return "".join(text) + f"\n### Singular values (Figure 2)\n\n![singular values]({picture})\n"


def format_stages(stages: Stages) -> str:
    return f"""
## Table 4: 262,144 x 2,048, W = 256, N = 16,384

The weights are drawn at random, since times do not depend on their values. Figures are medians for one context
vector. The stages run in ONNX Runtime, but for the selection, which is the service's own, and the full view, which
uses the service's compiled loops (one thread). `V^T h` is computed for the preview alone: the full view scores the
original weights.

{stages.markdown()}
The paper reports 1,541 ms for the full softmax and 304 ms for SVD-softmax on an i7-6850 (5.08 times), and 14.12 and
4.43 ms on a Titan X (3.19 times). The paper's full softmax moves 1.4 GB/s; the dense layer here, a contiguous
product, runs at the memory's speed. The full view reads 16,384 rows of 8 KB from all over the mapped weights, four at
a time, without copying them; Gather and MatMul, which copy the rows first, take longer ([log](log/papers.md)).
"""


def make_page(args: argparse.Namespace) -> str:
    """The page; its pictures are written on the way."""
    parts = [SVD_INTRODUCTION]
    for name in ("ptb", "smollm2"):
        parts.append(make_section(name, DATASETS[name](Place(args.cache, args.data))))
    if not args.no_table_4:
        parts.append(format_stages(time_stages(args.cache / "table-4")))
    return "".join(parts)


def main() -> int:
    parser = make_paper_parser(MODULE, __doc__, data="wikitext-2/ and ptb/")
    parser.add_argument("--no-table-4", action="store_true", help="leave out the shape that needs 12 GiB")
    args = parser.parse_args()
    return write_page(MODULE, "svd-softmax.md", lambda: make_page(args))


if __name__ == "__main__":
    sys.exit(main())
