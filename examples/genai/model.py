"""Make a model of onnxruntime-genai whose output layer is left to a head.

  python -m examples.genai.model MODEL_FOLDER OUT_FOLDER

MODEL_FOLDER is one of transformers. onnxruntime-genai's model builder leaves the output layer out (`exclude_lm_head`),
but its generator runs no model without logits, so the graph gets some that cost nothing: how far each position is
behind the last one, as negative numbers. Those that the generator takes tell a head which position a text ends at.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from shortlist.errors import BadInput, NotFound, ShortlistError

MODEL_FILE, CONFIG_FILE = "model.onnx", "genai_config.json"
STATES, LOGITS = "hidden_states", "logits"


def build_model(folder: Path, out: Path) -> None:
    """Write the model in `folder` to `out`, in float32 for the CPU; raises NotFound, and BadInput where that fails."""
    if not (folder / "config.json").is_file():
        raise NotFound(f"there is no config.json in {folder}: give a folder of transformers, with safetensors")
    options = ["-p", "fp32", "-e", "cpu", "--extra_options", "exclude_lm_head=true"]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(folder), "-o", str(out), *options]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        reason = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["it said nothing"]
        raise BadInput(f"onnxruntime-genai builds no model of {folder} ({reason[0].strip()}): give one that it knows")
    config = json.loads((out / CONFIG_FILE).read_text("utf-8"))
    model = onnx.load(out / MODEL_FILE, load_external_data=False)
    add_logits(model.graph, config["model"]["vocab_size"])
    onnx.save(model, out / MODEL_FILE)
    config["model"]["decoder"]["outputs"] |= {STATES: STATES, LOGITS: LOGITS}
    (out / CONFIG_FILE).write_text(json.dumps(config, indent=2), "utf-8")


def add_logits(graph: onnx.GraphProto, classes: int) -> None:
    """Give a graph with hidden states [B, T, d] an output [B, T, V] of 1 - T at the first position, 0 at the last."""
    make, node = helper.make_tensor, helper.make_node
    graph.initializer.extend([
        make("logits_classes", TensorProto.INT64, [1], [classes]),
        make("logits_one", TensorProto.FLOAT, [], [1]),
        make("logits_column", TensorProto.INT64, [2], [-1, 1]),
    ])  # fmt: skip
    graph.node.extend([
        node("Shape", [STATES], ["logits_rows"], start=0, end=2),
        node("Concat", ["logits_rows", "logits_classes"], ["logits_shape"], axis=0),
        node("Shape", [STATES], ["logits_positions"], start=1, end=2),
        node("Squeeze", ["logits_positions"], ["logits_length"]),
        node("Cast", ["logits_length"], ["logits_float_length"], to=TensorProto.FLOAT),
        node("Sub", ["logits_one", "logits_float_length"], ["logits_first"]),
        node("Range", ["logits_first", "logits_one", "logits_one"], ["logits_places"]),
        node("Reshape", ["logits_places", "logits_column"], ["logits_each_place"]),
        node("Expand", ["logits_each_place", "logits_shape"], [LOGITS]),
    ])  # fmt: skip
    shape = ["batch_size", "sequence_length", classes]
    graph.output.append(helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, shape))


def main() -> int:
    """Make the model; 1 with one sentence where that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="model of transformers, with its tokenizer")
    parser.add_argument("out", type=Path, help="folder that is made")
    args = parser.parse_args()
    try:
        build_model(args.folder, args.out)
    except ShortlistError as error:
        print(f"genai: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
