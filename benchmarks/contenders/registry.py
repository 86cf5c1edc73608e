"""Contenders by name. A new one is a class in a module of its own and a line here."""

from __future__ import annotations

from .base import Contender, Options
from .dense.numpy_dense import NumpyDense
from .dense.onnx_dense import OnnxDense
from .dense.torch_dense import TorchDense
from .ours import OursCascade, OursFull, OursGrouped, OursL2s, OursSvd
from .peers.faiss_indexes import (
    FaissCodes,
    FaissFlat,
    FaissGraph,
    FaissInverted,
    FaissLargeGraph,
    FaissManyCells,
    FaissProductQuantizer,
    FaissTruncated,
)
from .peers.flash_head import FlashHead
from .peers.greedy_mips import GreedyMips
from .peers.hnswlib_indexes import HnswFgd, HnswFgdLarge, HnswIp, HnswIpLarge
from .peers.lsh_mips import LshMips
from .peers.ort_int8 import OnnxInt8
from .peers.pca_mips import PcaMips
from .peers.scann_indexes import ScannBytes, ScannHash, ScannTree, ScannTruncated
from .peers.usearch_index import Usearch, UsearchLarge

DENSE_SPELLINGS: tuple[type[Contender], ...] = (OnnxDense, TorchDense, NumpyDense)
OUR_HEADS: tuple[type[Contender], ...] = (OursFull, OursSvd, OursL2s, OursCascade, OursGrouped)
QUANTISED_PEERS: tuple[type[Contender], ...] = (OnnxInt8,)
LIBRARY_PEERS: tuple[type[Contender], ...] = (
    FaissFlat, FaissCodes, FaissProductQuantizer, FaissTruncated, FaissInverted, FaissManyCells, FaissGraph,
    FaissLargeGraph, ScannBytes, ScannHash, ScannTruncated, ScannTree, HnswIp, HnswFgd, HnswIpLarge, HnswFgdLarge,
    Usearch, UsearchLarge,
)  # fmt: skip
PAPER_PEERS: tuple[type[Contender], ...] = (FlashHead, GreedyMips, PcaMips, LshMips)
CONTENDERS: dict[str, type[Contender]] = {
    kind.name: kind for kind in (*DENSE_SPELLINGS, *OUR_HEADS, *QUANTISED_PEERS, *LIBRARY_PEERS, *PAPER_PEERS)
}

__all__ = ["CONTENDERS", "LIBRARY_PEERS", "OUR_HEADS", "PAPER_PEERS", "QUANTISED_PEERS", "Contender", "Options"]
