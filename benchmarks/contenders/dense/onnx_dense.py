"""The dense layer in ONNX Runtime, float32."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from shortlist_exporter.inputs.sources import Dense

from benchmarks.common.dense import list_spellings, open_spelling
from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options


class OnnxDense(Contender):
    """MatMul or Gemm, ONNX TopK or a threshold, weights packed or as mapped."""

    name: ClassVar[str] = "dense, onnxruntime"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        del dense
        return [{"spelling": name} for name in list_spellings()]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        del contexts
        self.folder = TemporaryDirectory()
        self.call = open_spelling(dense, Path(self.folder.name), self.build["spelling"], self.threads)
        self.bytes = dense.weight.nbytes

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        return self.call(contexts, k)

    def size(self) -> int:
        return self.bytes
