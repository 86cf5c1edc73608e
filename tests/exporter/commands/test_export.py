"""`shortlist export`: its help, and what it says of a layer before the work."""

import subprocess
import sys

import numpy as np
import pytest
from shortlist_exporter.commands import export
from shortlist_exporter.methods import registry

from tests.support.layers import call_cli


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "is_noted"), [((12, 40), True), ((40, 12), False)])
def test_a_weight_without_contexts_that_may_be_transposed_is_noted(tmp_path, shape, is_noted):
    np.save(tmp_path / "w.npy", np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    inputs = ("--weights", tmp_path / "w.npy", "--method", "full", "--no-report", "--out", tmp_path / "lm" / "1")
    process = call_cli("export", *inputs)
    assert process.returncode == 0, process.stderr
    noted = "12 rows of 40 numbers, and each row is a class: give the transpose if it is a kernel [d, V]"
    assert (noted in process.stderr) == is_noted


def test_the_methods_are_those_of_the_registry():
    assert (list(export.METHOD_NAMES), export.DEFAULT_METHOD) == (list(registry.METHODS), registry.DEFAULT_METHOD)


def test_help_and_wrong_arguments_do_not_wait_for_torch():
    code = "import sys; from shortlist.cli import main; sys.modules['torch'] = None; main(['export', *sys.argv[1:]])"
    for arguments, words in ((["--help"], "usage: shortlist export"), (["--threads", "x"], "'x' is not a whole")):
        command = [sys.executable, "-c", code, *arguments]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert words in process.stdout + process.stderr
