"""Draws inside `generate` of transformers: how they are asked for, what they leave no room for, where each is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shortlist.core.checks import parse_whole_number
from shortlist.errors import BadInput

FORBIDDING = {
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "prefix_allowed_tokens_fn",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "min_length",
    "min_new_tokens",
    "guidance_scale",
    "sequence_bias",
}  # options of `generate` that may leave out the token drawn, or ask `forward` for more than one text a row
NO_GUIDANCE = ("guidance_scale", 1.0)

Tensor = torch.Tensor


@dataclass(frozen=True)
class Draws:
    """How `generate` draws: each token exactly from the softmax, by noise that is a function of its seed and position.

    seed: of row 0; each further row of the batch has the next one; or a sequence of one a row, which makes a row's text
    the same in every batch. The position of a token is how many tokens come before it, padding apart; of a model with
    an encoder, those of the decoder. The rest is as of `Head.sample`. No processor of `generate` may forbid tokens: it
    would forbid the one drawn, too, and leave none.
    """

    seed: int | Sequence[int]
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def list_seeds(self, rows: int) -> list[int]:
        """A seed for each of `rows` rows; raises BadInput where there are more or fewer."""
        if np.ndim(self.seed) == 0:
            first = parse_whole_number("seed", self.seed)
            return [first + row for row in range(rows)]
        seeds = [parse_whole_number("seed", seed) for seed in self.seed]  # type: ignore[union-attr]
        if len(seeds) != rows:
            raise BadInput(f"draws have {len(seeds)} seeds for {rows} rows: give one seed, or one for each row")
        return seeds


def check_options(given: Sequence[Mapping[str, Any]]) -> None:
    """Raise BadInput where `generate` is asked for what draws cannot give.

    given: its options by name, those that count most first; None stands for what the next ones say.
    """
    beams = find_option(given, "num_beams") or 1
    if beams > 1:
        raise BadInput(f"draws are of one text a row, not of {beams} beams: give num_beams=1, or attach without draws")
    for name in sorted(FORBIDDING):
        option = find_option(given, name)
        if option and (name, option) != NO_GUIDANCE:
            raise BadInput(
                f"{name} may forbid the token that was drawn: leave it out, of model.generation_config too, or attach "
                "without draws"
            )


def find_option(given: Sequence[Mapping[str, Any]], name: str) -> Any:
    """The first of them that is not None."""
    return next((options[name] for options in given if options.get(name) is not None), None)


def count_tokens(model: Any, args: Any, arguments: dict[str, Any]) -> npt.NDArray[np.int64]:
    """How many tokens each row has [B], by the arguments of `forward`: of the decoder's side, where there are two.

    Those of the mask, else by the position of the last one, else of cache and input; raises BadInput without input.
    """
    side = "decoder_" if model.config.is_encoder_decoder else ""
    given = [arguments.get(f"{side}input_ids"), arguments.get(f"{side}inputs_embeds"), *args[: 0 if side else 1]]
    tokens = next((each for each in given if each is not None), None)
    if tokens is None:
        raise BadInput(f"draws count the tokens before each one, which forward did not get: give {side}input_ids")
    mask, positions = arguments.get(f"{side}attention_mask"), arguments.get(f"{side}position_ids")
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return count_rows(mask.sum(dim=1))
    if isinstance(positions, Tensor) and positions.shape[:-1] == tokens.shape[:1]:
        return count_rows(positions[:, -1] + 1)  # a static cache has a mask of four dimensions
    cache = arguments.get("past_key_values")
    return np.full(len(tokens), tokens.shape[1] + (0 if cache is None else int(cache.get_seq_length())), np.int64)


def count_rows(lengths: Tensor) -> npt.NDArray[np.int64]:
    """Lengths [B] as whole numbers on the CPU."""
    return lengths.cpu().numpy().astype(np.int64)


def list_positions(lengths: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """How many tokens come before what each of a row's last `count` inputs draws: [B, count]; of padding none."""
    positions: npt.NDArray[np.int64] = lengths[:, None] - np.arange(count - 1, -1, -1)
    return positions.clip(min=0)
