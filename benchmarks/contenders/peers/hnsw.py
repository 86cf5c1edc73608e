"""What all libraries' HNSW graphs (Malkov and Yashunin 2016, arXiv 1603.09320) are tried with.

Rows may be lifted as the fast graph decoder does (Zhang et al. 2018, arXiv 1806.04189): with U the largest norm, rows
become [x; b; sqrt(U^2 - |x|^2 - b^2)] and queries [h; 1; 0]. All lifted rows have one norm, so inner products order
them as the paper's distances do, without the rounding of large squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.contenders.base import Options

BASES_AND_LIFTS = (("raw", False), ("raw", True), ("whitened", True))
SEARCH_BEAMS = (50, 100, 200, 300, 400, 600, 1000, 2000, 5000, 20000)  # candidates that a search keeps (HNSW's ef)
# M and efConstruction; minutes to hours to build. 32 with 5,000 is that of Loretz and Hochreiter (arXiv 2608.27460).
LARGE_GRAPHS = ((16, 500), (32, 500), (64, 500), (32, 5000))


def list_graph_builds(
    graphs: Sequence[tuple[int, int]], bases_and_lifts: Sequence[tuple[str, bool]], **options: Any
) -> tuple[Options, ...]:
    """Build options for each graph (M, efConstruction) over rows in each basis, lifted or not, with `options`."""
    return tuple(
        {"basis": basis, "lift": lift, **options, "links": links, "construction": construction}
        for links, construction in graphs
        for basis, lift in bases_and_lifts
    )


def list_beam_settings(name: str, classes: int) -> list[Options]:
    """Values of the option `name` up to a quarter of the classes, as the fast graph decoder's authors did."""
    return [{name: beam} for beam in sorted({min(beam, classes // 4) for beam in SEARCH_BEAMS})]
