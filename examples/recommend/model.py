"""A small sequential recommender: self-attention over the items that a user took, as SASRec (Kang and McAuley 2018).

The score of an item is the product of its embedding with the user's last hidden state: a layer that a head can replace.
Trained with the softmax over all items, as Klenitskiy and Vasilev 2023 found better than SASRec's one sampled negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from shortlist.errors import BadInput
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes: of the catalogue, of an embedding, how many of a user's last items are looked at. Raises BadInput."""

    items: int
    dim: int = 64
    length: int = 100
    layers: int = 2
    heads: int = 2
    dropout: float = 0.3

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise BadInput(f"dim is {self.dim} but must be a multiple of {self.heads}, the heads that share it")


class Recommender(nn.Module):
    """Items that a user took, [B, length] int64, -> hidden states [B, length, d]; `padding` stands for none."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.padding = shape, shape.items
        self.embedding = nn.Embedding(shape.items + 1, shape.dim, padding_idx=shape.items)
        self.positions = nn.Parameter(torch.randn(shape.length, shape.dim) * shape.dim**-0.5)
        nn.init.normal_(self.embedding.weight, std=shape.dim**-0.5)
        layer = nn.TransformerEncoderLayer(
            shape.dim, shape.heads, 4 * shape.dim, shape.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, shape.layers, nn.LayerNorm(shape.dim), enable_nested_tensor=False)
        self.dropout = nn.Dropout(shape.dropout)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.length), persistent=False)

    @property
    def weight(self) -> Tensor:
        """The layer that scores items, [V, d]."""
        return self.embedding.weight[: self.padding]

    def forward(self, taken: Tensor) -> Tensor:
        """Hidden states [B, length, d]; those of padding mean nothing."""
        mask: Tensor = self.get_buffer("mask")
        inputs = self.dropout(self.embedding(taken) * self.shape.dim**0.5 + self.positions)
        hidden: Tensor = self.layers(inputs, mask=mask, is_causal=True)
        return hidden
