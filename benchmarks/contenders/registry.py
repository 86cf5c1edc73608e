"""Contenders by name. A new one is a class in a module of its own and a line here."""

from __future__ import annotations

from benchmarks.contenders.dense.numpy_dense import NumpyDense
from benchmarks.contenders.dense.torch_dense import TorchDense

from . import ours
from .base import Contender, Options
from .dense import onnx_dense
from .peers import (
    faiss_indexes,
    flash_head,
    greedy_mips,
    hnswlib_indexes,
    lsh_mips,
    ort_int8,
    pca_mips,
    scann_indexes,
    usearch_index,
)

DENSE: tuple[type[Contender], ...] = (onnx_dense.OnnxDense, TorchDense, NumpyDense)
OURS: tuple[type[Contender], ...] = ours.CONTENDERS
PEERS: tuple[type[Contender], ...] = (
    *ort_int8.CONTENDERS,
    *faiss_indexes.CONTENDERS,
    *scann_indexes.CONTENDERS,
    *hnswlib_indexes.CONTENDERS,
    *usearch_index.CONTENDERS,
    *flash_head.CONTENDERS,
    *greedy_mips.CONTENDERS,
    *pca_mips.CONTENDERS,
    *lsh_mips.CONTENDERS,
)
CONTENDERS: dict[str, type[Contender]] = {kind.name: kind for kind in (*DENSE, *OURS, *PEERS)}

__all__ = ["CONTENDERS", "DENSE", "OURS", "PEERS", "Contender", "Options"]
