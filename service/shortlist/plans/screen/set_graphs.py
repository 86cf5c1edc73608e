"""The graphs that score one cluster's or one expert's classes."""

from __future__ import annotations

from typing import NamedTuple

from shortlist.bundle.reader import Bundle
from shortlist.core.results import IdArray
from shortlist.runtime.session import Graph

BEST_OUTPUTS = ["top_logits", "top_index", "log_normalizer"]  # outputs of a graph that selects the k best classes


class SetGraph(NamedTuple):
    """A graph, and the inputs that tell it which set is meant: `first` and `last` [1], or none."""

    graph: Graph
    place: dict[str, IdArray]


def open_set_graphs(
    bundle: Bundle, stem: str, offsets: IdArray, device: str, threads: int, *, prepack: bool = False
) -> list[SetGraph]:
    """Open the graph of each set; entry i scores set i.

    Where the bundle has any.onnx, it stands for all: one session stays warm where a hundred would not. It slices a
    set's weights out of all by the places of its first and last class. Else set 7 has the graph `<stem>-0007`.
    """
    if bundle.has_graph("any"):
        graph = Graph(bundle.graph("any"), device, threads)
        ends = ((offsets[i : i + 1], offsets[i + 1 : i + 2]) for i in range(len(offsets) - 1))
        return [SetGraph(graph, {"first": first, "last": last}) for first, last in ends]
    paths = (bundle.graph(f"{stem}-{number:04d}") for number in range(len(offsets) - 1))
    return [SetGraph(Graph(path, device, threads, prepack=prepack), {}) for path in paths]
