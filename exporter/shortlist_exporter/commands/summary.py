"""The table that an export prints of what it made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from shortlist.bundle.manifest import Manifest, Quality, TargetQuality
from shortlist.evaluation.statistics import PRECISION_DEPTHS


def make_summary(manifest: Manifest, out: Path) -> Table:
    """A table of what was exported and the quality that it promises."""
    quality = manifest.quality
    assert quality is not None
    table = Table(title=f"{out}: {manifest.method}, V = {manifest.classes:,}, d = {manifest.dim}", show_header=False)
    crossover = manifest.dense_crossover
    precision = f"{quality.p_at_1:.4f} / {quality.p_at_5:.4f} / {quality.p_at_10:.4f}"
    for name, figure in {
        "settings": list_values(manifest.settings.model_dump()),
        "made with": list_values(manifest.fit),
        "P@1 / P@5 / P@10": f"{precision} on {quality.rows:,} held-out contexts",
        **{f"P@{k}": f"{share:.4f}" for k, share in quality.p_at.items() if k not in PRECISION_DEPTHS},
        "log-prob error": describe_errors(quality, manifest.normalizer),
        "multiply-adds": describe_cost(quality.cost_macs),
        "weight bytes read": describe_cost(quality.cost_bytes),
        "exact answers": describe_exact(manifest),
        "answered dense": f"from {crossover} rows a request" if crossover else "never by batch size",
    }.items():
        table.add_row(name, figure)
    for name, figure in describe_targets(quality.targets):
        table.add_row(name, figure)
    return table


def describe_cost(share: float) -> str:
    """What a query costs beside the dense layer: a fraction of it, or how many times as much."""
    return f"1/{1 / share:.1f} of dense" if share < 1 else f"{share:.1f} times dense"


def describe_errors(quality: Quality, normalizer: str) -> str:
    """Errors of log-probabilities, with and without the rows whose best class was missed."""
    text = f"mean {quality.logprob_error_mean:.2g}, p99 {quality.logprob_error_p99:.2g} nats ({normalizer} normaliser)"
    if quality.logprob_error_hits_mean is None:
        return text
    hits = f"mean {quality.logprob_error_hits_mean:.2g}, p99 {quality.logprob_error_hits_p99:.2g}"
    return f"{text}; where the best class was found {hits}"


def list_values(values: dict[str, Any]) -> str:
    """Names and values as `name=value, ...`, but for values of many numbers; `none` where there are none."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if not isinstance(value, tuple)) or "none"


def describe_exact(manifest: Manifest) -> str:
    """Describe how exact requests are answered."""
    certificate = manifest.certificate
    if certificate is None:
        return "by dense" if "dense" in manifest.graphs or manifest.plan == "full" else "none"
    crossover = certificate.dense_crossover
    until = f", by dense from {crossover} rows" if crossover else ""
    within = f"log-probs within {certificate.logprob_bound:.2g} nats"
    return f"proved, {within}, {certificate.rescored:.0f} classes rescored{until}"


def describe_targets(targets: TargetQuality | None) -> Iterator[tuple[str, str]]:
    """Rows of the table with figures on targets, of the head and of dense."""
    if targets is None:
        return
    figures_by_name = {"head": targets.head, "dense": targets.dense, "dense, retrained": targets.retrained}
    for name, figures in figures_by_name.items():
        if figures is not None:
            best = f"{figures.top_1:.4f} / {figures.top_5:.4f} / {figures.top_10:.4f}"
            rest = f", {figures.impossible:.2%} with probability 0" if figures.impossible else ""
            perplexity = "infinite" if figures.perplexity is None else f"{figures.perplexity:.2f}"
            yield f"{name}: target in top 1 / 5 / 10", f"{best}, perplexity {perplexity}{rest}"
