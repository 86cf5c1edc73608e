"""A Transformer in Marian's layout: its parameters have the names, shapes and meaning of a Marian model file.

Norms come behind each sum (`postprocess: dan`), positions are sines beside cosines, activations are ReLU, a sentence
begins with an embedding of zeros, and the output layer has rows of its own. A model file holds the positions as trained
ones: programs that make sines by themselves disagree about their frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

MARIAN_VERSION = "v1.12.0"
NORM_EPSILON = 1e-5
SAVED_POSITIONS = 512  # of a model file: the longest sentence that other programs translate


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    sources, targets: words of both vocabularies. dim: of an embedding. inner: of a feed-forward.
    """

    sources: int
    targets: int
    dim: int = 192
    inner: int = 512
    heads: int = 4
    layers: int = 2
    dropout: float = 0.2


class Transformer(nn.Module):
    """Encoder and decoder; weights are [in, out], as Marian has them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.parameters_by_name = nn.ParameterDict(dict(self.list_parameters()))
        self.dropout = nn.Dropout(shape.dropout)

    def list_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter, by Marian's name."""
        shape = self.shape
        yield "encoder_Wemb", draw(shape.sources, shape.dim)
        yield "decoder_Wemb", draw(shape.targets, shape.dim)
        for layer in range(1, shape.layers + 1):
            for block in (f"encoder_l{layer}_self", f"decoder_l{layer}_self", f"decoder_l{layer}_context"):
                for part in ("q", "k", "v", "o"):
                    yield f"{block}_W{part}", draw(shape.dim, shape.dim)
                    yield f"{block}_b{part}", fill(shape.dim, 0.0)
                yield from make_norm(f"{block}_Wo", shape.dim)
            for block in (f"encoder_l{layer}_ffn", f"decoder_l{layer}_ffn"):
                yield f"{block}_W1", draw(shape.dim, shape.inner)
                yield f"{block}_b1", fill(shape.inner, 0.0)
                yield f"{block}_W2", draw(shape.inner, shape.dim)
                yield f"{block}_b2", fill(shape.dim, 0.0)
                yield from make_norm(f"{block}_ffn", shape.dim)
        yield "decoder_ff_logit_out_W", draw(shape.dim, shape.targets)
        yield "decoder_ff_logit_out_b", fill(shape.targets, 0.0)

    def __getitem__(self, name: str) -> Tensor:
        """The parameter of that name."""
        result: Tensor = self.parameters_by_name[name]
        return result

    def embed(self, table: str, ids: Tensor, start: int = 0) -> Tensor:
        """[B, t] -> [B, t, d]: embeddings by the root of d, and the positions from `start` on."""
        vectors = functional.embedding(ids, self[table]) * math.sqrt(self.shape.dim)
        return vectors + make_positions(start + ids.shape[1], self.shape.dim)[start:]

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Sources [B, s] and where they have tokens -> [B, s, d]."""
        states = self.dropout(self.embed("encoder_Wemb", ids))
        for layer in range(1, self.shape.layers + 1):
            block = f"encoder_l{layer}_self"
            states = self.add_attention(block, states, *self.project(block, states), mask[:, None, None])
            states = self.add_feed_forward(f"encoder_l{layer}_ffn", states)
        result: Tensor = states
        return result

    def decode(self, memory: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """Contexts [B, t, d] of which each predicts the word of `targets` [B, t] at its place."""
        length = targets.shape[1]
        states = self.dropout(self.embed_shifted(targets))
        causal = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        for layer in range(1, self.shape.layers + 1):
            block = f"decoder_l{layer}_self"
            states = self.add_attention(block, states, *self.project(block, states), causal)
            block = f"decoder_l{layer}_context"
            states = self.add_attention(block, states, *self.project(block, memory), mask[:, None, None])
            states = self.add_feed_forward(f"decoder_l{layer}_ffn", states)
        result: Tensor = states
        return result

    def embed_shifted(self, targets: Tensor) -> Tensor:
        """[B, t] -> [B, t, d]: each place has the word before it, the first one zeros."""
        words = functional.embedding(targets[:, :-1], self["decoder_Wemb"]) * math.sqrt(self.shape.dim)
        return functional.pad(words, (0, 0, 1, 0)) + make_positions(targets.shape[1], self.shape.dim)

    def project(self, block: str, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, h, t, d / h] of `states` [B, t, d]."""
        keys, values = (states @ self[f"{block}_W{part}"] + self[f"{block}_b{part}"] for part in ("k", "v"))
        return self.split_heads(keys), self.split_heads(values)

    def split_heads(self, states: Tensor) -> Tensor:
        """[B, t, d] -> [B, h, t, d / h]."""
        result: Tensor = states.view(*states.shape[:2], self.shape.heads, -1).transpose(1, 2)
        return result

    def add_attention(self, block: str, states: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """`states` [B, t, d] and what they attend to, normed. mask: True where they may."""
        queries = self.split_heads(states @ self[f"{block}_Wq"] + self[f"{block}_bq"])
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        output = mixed.transpose(1, 2).flatten(2) @ self[f"{block}_Wo"] + self[f"{block}_bo"]
        return self.norm(f"{block}_Wo", states + self.dropout(output))

    def add_feed_forward(self, block: str, states: Tensor) -> Tensor:
        """`states` [B, t, d] and their feed-forward, normed."""
        inner = functional.relu(states @ self[f"{block}_W1"] + self[f"{block}_b1"])
        return self.norm(f"{block}_ffn", states + self.dropout(inner @ self[f"{block}_W2"] + self[f"{block}_b2"]))

    def norm(self, name: str, states: Tensor) -> Tensor:
        """Layer norm."""
        return functional.layer_norm(
            states, states.shape[-1:], self[f"{name}_ln_scale"], self[f"{name}_ln_bias"], NORM_EPSILON
        )

    def score(self, contexts: Tensor) -> Tensor:
        """Logits [..., V] of contexts [..., d]: the output layer."""
        return contexts @ self["decoder_ff_logit_out_W"] + self["decoder_ff_logit_out_b"]

    def save_marian(self, path: Path) -> None:
        """Write model.npz with Marian's names and settings."""
        arrays = {name: np.atleast_2d(value.detach().numpy()) for name, value in self.parameters_by_name.items()}
        arrays["Wpos"] = make_positions(SAVED_POSITIONS, self.shape.dim).numpy()
        settings = "".join(f"{key}: {value}\n" for key, value in describe(self.shape).items()) + "\0"
        np.savez(path, allow_pickle=False, **arrays, **{"special:model.yml": np.frombuffer(settings.encode(), np.int8)})


def load_marian(path: Path) -> Transformer:
    """The model of a model.npz that `save_marian` wrote."""
    with np.load(path) as arrays:
        lines = arrays["special:model.yml"].tobytes().decode().rstrip("\0").splitlines()
        settings = dict(line.split(": ", 1) for line in lines)
        sources, targets = (int(size) for size in settings["dim-vocabs"].strip("[]").split(","))
        model = Transformer(
            Shape(
                sources,
                targets,
                dim=int(settings["dim-emb"]),
                inner=int(settings["transformer-dim-ffn"]),
                heads=int(settings["transformer-heads"]),
                layers=int(settings["enc-depth"]),
            )
        )
        state = {name: torch.from_numpy(arrays[name]).view_as(old) for name, old in model.parameters_by_name.items()}
    model.parameters_by_name.load_state_dict(state)
    return model.eval()


def draw(height: int, width: int) -> nn.Parameter:
    """Glorot's uniform weights."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(height, width)))


def fill(width: int, value: float) -> nn.Parameter:
    """A vector of one value."""
    return nn.Parameter(torch.full((width,), value))


def make_norm(name: str, dim: int) -> Iterator[tuple[str, nn.Parameter]]:
    """Scale and bias of a norm."""
    yield f"{name}_ln_scale", fill(dim, 1.0)
    yield f"{name}_ln_bias", fill(dim, 0.0)


def make_positions(length: int, dim: int) -> Tensor:
    """[length, dim]: sines, then cosines, of falling frequencies."""
    frequencies = torch.exp(torch.arange(dim // 2) * (-math.log(10_000.0) / max(1, dim // 2 - 1)))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def describe(shape: Shape) -> dict[str, object]:
    """The settings of a Marian model file."""
    sizes = asdict(shape)
    return {
        "type": "transformer",
        "version": MARIAN_VERSION,
        "dim-emb": sizes["dim"],
        "dim-vocabs": f"[{sizes['sources']}, {sizes['targets']}]",
        "enc-depth": sizes["layers"],
        "dec-depth": sizes["layers"],
        "transformer-heads": sizes["heads"],
        "transformer-dim-ffn": sizes["inner"],
        "transformer-ffn-activation": "relu",
        "transformer-ffn-depth": 2,
        "transformer-preprocess": '""',
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-train-position-embeddings": "true",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-guided-alignment-layer": "last",
        "transformer-no-projection": "false",
        "tied-embeddings": "false",
        "tied-embeddings-all": "false",
        "tied-embeddings-src": "false",
    }
