"""A weight matrix's way from sources to a sealed bundle, all of it or nothing; `export` is the list of its stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.writer import write_version
from torch import nn

from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.certificate import write_certificate
from shortlist_exporter.inputs.formats import tensor_file, torch_file
from shortlist_exporter.inputs.formats.base import check_finite
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.inputs.splits import select_rows, split_held_out
from shortlist_exporter.methods.base import DenseMethod, Fitted, Method, TrainedMethod
from shortlist_exporter.methods.registry import find_method
from shortlist_exporter.records.report import HELD_OUT
from shortlist_exporter.report.measure.samples import Sample
from shortlist_exporter.verify.quality import TRUE_CLASSES

from .promise import keep_promise, split_calibration
from .request import Request, check_request
from .seal import add_report, verify_and_seal
from .truth import find_truth
from .write import make_manifest, write_graphs, write_index, write_names


def export(dense: Dense, contexts: Contexts, out: Path, request: Request, progress: Progress = quiet) -> Manifest:
    """Fit a head and write it to `out` (`<name>/<version>`); returns its manifest.

    `progress` gets (stage, done, total). Raises BadInput, VersionExists, QualityError (nothing is left behind in
    any of these cases), BundleError.
    """
    # Inputs: refuse what cannot succeed, hold some contexts out
    check_request(dense, contexts, out, request)
    method = find_method(request.method)
    fit_rows, held_rows = split_held_out(contexts, request.seed)
    fit_sample, held_out = select_rows(contexts, fit_rows), select_rows(contexts, held_rows)
    with write_version(out) as folder:
        # Fit the head to the dense layer, or train it; a promise is calibrated on contexts of its own
        fit_sample, calibration = split_calibration(method, fit_sample, request)
        fitted = fit_head(method, dense, fit_sample, request, progress)
        # Write its graphs, what proves exact answers, its index, and a manifest before anything was measured
        progress("graphs", 0, 1)
        files = write_graphs(folder, dense, method, fitted, keep_dense=request.keep_dense)
        files |= add_certificate(folder, dense, method, fitted, fit_sample, request, progress)
        files |= write_names(folder, request.names)
        write_index(folder, method.make_index(fitted))
        draft = make_manifest(dense, contexts, out, request, method, fitted, files)
        if method.reference == "dense":
            fitted = replace(fitted, module=dense.module)  # all that is measured is on disk: its tensors may go
        draft = keep_promise(folder, draft, request, dense.module, calibration, progress)
        # Verify it with the service's own runtime on the held-out contexts, and seal it
        reference = dense.module if method.reference == "dense" else fitted.module
        truth = find_truth(reference, held_out, max(min(TRUE_CLASSES, draft.max_k), *request.depths, 1), progress)
        sample = Sample(HELD_OUT, held_out.contexts, truth, held_out.documents, held_out.kind_rows, request.depths)
        manifest = verify_and_seal(folder, draft, request, fitted, sample, reference, dense.module, progress)
        # Report
        if request.report:
            add_report(folder, out, request, sample, progress)
        return manifest


def fit_head(
    method: DenseMethod | TrainedMethod, dense: Dense, examples: Contexts, request: Request, progress: Progress
) -> Fitted:
    """Fit the head to the dense layer, train it on its own, or restore one that was trained elsewhere."""
    progress("fit", 0, 1)
    if not isinstance(method, TrainedMethod):
        return method.fit(dense, examples.contexts, request.options, request.seed, progress)
    if request.head is None:
        return method.learn(dense, examples, request.options, request.seed, progress)
    fitted = method.restore(dense, load_state(request.head), examples, request.options)
    fit = {name: value for name, value in fitted.fit.items() if name not in method.training_options}
    return replace(fitted, fit=fit)


def load_state(head: Path | nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module, a safetensors file, or a state dict saved by torch, numbers in float32.

    Where they hold a module's, as a training's checkpoint does, the module's alone, by its own names. Raises NotFound,
    and BadInput for a file of something else, NaN or infinity.
    """
    if isinstance(head, Path):
        is_torch_file = head.is_file() and head.suffix in (".pt", ".pth", ".bin")
        read = torch_file.read_torch_tensors(head) if is_torch_file else tensor_file.read_tensors(head, "weight")
        tensors = read.tensors
    else:
        tensors = {name: value.detach().cpu() for name, value in head.state_dict().items()}
    tensors = torch_file.strip_wrappers(torch_file.select_module(tensors) or tensors)
    state = {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    for name, value in state.items():
        check_finite(f"{name} of the trained head", value.reshape(value.shape or (1,)).numpy())
    return state


def add_certificate(
    folder: Path,
    dense: Dense,
    method: Method,
    fitted: Fitted,
    fit_sample: Contexts,
    request: Request,
    progress: Progress,
) -> GraphFiles:
    """Write what proves exact answers, where the request asks for it and the bundle has what they are exact for."""
    if not request.certificate or (method.reference == "dense" and not request.keep_dense):
        return GraphFiles()
    proved = method.find_proved_layer(fitted, dense, fit_sample.contexts)
    if proved is None:
        return GraphFiles()
    progress("certificate", 0, 1)
    return write_certificate(folder, *proved, request.seed)
