"""Make a model of onnxruntime-genai whose output layer is left to a head.

  python -m examples.genai.model MODEL_FOLDER OUT_FOLDER

MODEL_FOLDER is one of transformers. onnxruntime-genai's model builder leaves the output layer out (`exclude_lm_head`),
but its generator runs no model without logits, so the graph gets some that cost nothing: zeros.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

MODEL_FILE, CONFIG_FILE = "model.onnx", "genai_config.json"
STATES, LOGITS = "hidden_states", "logits"


def build_model(folder: Path, out: Path) -> None:
    """Write the model in `folder` to `out`, in float32 for the CPU; raises CalledProcessError where that fails."""
    options = ["-p", "fp32", "-e", "cpu", "--extra_options", "exclude_lm_head=true"]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(folder), "-o", str(out), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    config = json.loads((out / CONFIG_FILE).read_text("utf-8"))
    model = onnx.load(out / MODEL_FILE, load_external_data=False)
    add_logits(model.graph, config["model"]["vocab_size"])
    onnx.save(model, out / MODEL_FILE)
    config["model"]["decoder"]["outputs"] |= {STATES: STATES, LOGITS: LOGITS}
    (out / CONFIG_FILE).write_text(json.dumps(config, indent=2), "utf-8")


def add_logits(graph: onnx.GraphProto, classes: int) -> None:
    """Give a graph with hidden states [B, T, d] an output of zeros [B, T, V]."""
    graph.initializer.append(helper.make_tensor("logits_classes", TensorProto.INT64, [1], [classes]))
    graph.node.extend([
        helper.make_node("Shape", [STATES], ["logits_rows"], start=0, end=2),
        helper.make_node("Concat", ["logits_rows", "logits_classes"], ["logits_shape"], axis=0),
        helper.make_node("ConstantOfShape", ["logits_shape"], [LOGITS]),
    ])  # fmt: skip
    shape = ["batch_size", "sequence_length", classes]
    graph.output.append(helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="model of transformers, with its tokenizer")
    parser.add_argument("out", type=Path, help="folder that is made")
    args = parser.parse_args()
    build_model(args.folder, args.out)


if __name__ == "__main__":
    main()
