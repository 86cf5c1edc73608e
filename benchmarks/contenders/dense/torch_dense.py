"""The dense layer in torch: Linear and topk."""

from __future__ import annotations

from typing import ClassVar

import torch
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options


class TorchDense(Contender):
    """The dense layer as one float32 product of torch, and its `topk`."""

    name: ClassVar[str] = "dense, torch"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        del dense
        return [{}]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        del contexts
        self.dense = dense.module

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        with torch.inference_mode():
            ids: IdArray = self.dense.logits(torch.from_numpy(contexts)).topk(k, dim=1).indices.numpy()
        return ids

    def size(self) -> int:
        return self.dense.weight.nbytes
