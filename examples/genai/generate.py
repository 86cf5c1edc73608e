"""Continue a text by onnxruntime-genai with a head for its output layer.

  python -m examples.genai.generate MODEL BUNDLE "The captain looked out over the"

MODEL is a folder that `examples.genai.model` made, BUNDLE a head of the same model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime_genai
import shortlist
from shortlist.errors import ShortlistError
from shortlist.head import Head
from shortlist.integrations.onnxruntime_genai import HeadGenerator

CLASSES_A_BEAM = 2  # that beam search takes


def make_generator(
    model: onnxruntime_genai.Model, tokens: npt.NDArray[np.int32], beams: int, length: int
) -> onnxruntime_genai.Generator:
    """A generator that has read tokens [B, t] and goes on to `length` of them, greedily or with beams."""
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=length, batch_size=len(tokens), num_beams=beams, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(tokens)
    return generator


def continue_texts(
    model: onnxruntime_genai.Model, head: Head, tokens: npt.NDArray[np.int32], beams: int, length: int, *, exact: bool
) -> list[list[int]]:
    """Texts of `length` tokens that begin with tokens [B, t] int32."""
    generator = make_generator(model, tokens, beams, length)
    texts = HeadGenerator(generator, head, k=1 if beams == 1 else CLASSES_A_BEAM * beams, exact=exact)
    while not generator.is_done():
        texts.generate_next_token()
    return [[int(token) for token in generator.get_sequence(row)] for row in range(len(tokens))]


def continue_prompt(args: argparse.Namespace) -> str:
    """The prompt and what follows it; raises ShortlistError, and RuntimeError of onnxruntime-genai."""
    model = onnxruntime_genai.Model(str(args.model))
    tokenizer, head = onnxruntime_genai.Tokenizer(model), shortlist.load(args.bundle)
    tokens = tokenizer.encode(args.prompt)[None]
    texts = continue_texts(model, head, tokens, args.beams, args.length, exact=args.exact)
    return str(tokenizer.decode(np.array(texts[0], np.int32)))


def main() -> int:
    """Print the text; 1 with one sentence where something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that examples.genai.model made")
    parser.add_argument("bundle", type=Path, help="folder of the head")
    parser.add_argument("prompt", help="text to continue")
    parser.add_argument("--length", type=int, default=60, help="tokens, the prompt's too (default: %(default)s)")
    parser.add_argument("--beams", type=int, default=1, help="of the search; 1 is greedy (default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="ask the head for exact answers")
    args = parser.parse_args()
    try:
        print(continue_prompt(args))
    except (ShortlistError, RuntimeError) as error:
        print(f"genai: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
