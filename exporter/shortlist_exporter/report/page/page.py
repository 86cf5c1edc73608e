"""The page: one HTML file that needs no other, and no network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.statistics import PRECISION_DEPTHS

from shortlist_exporter.records.report import CALIBRATION_SAMPLE, Domain, Figures, Point
from shortlist_exporter.report.pareto_front import find_front
from shortlist_exporter.report.verdict import are_own_rows

from .pictures import Picture, cost_of, time_of

MAX_TRIED_ROWS = 40  # rows of the table; the JSON has all
BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB")
Fact = tuple[str, str, str]  # name, figure, what it means


def render_page(bundle: Bundle, figures: Figures, pictures: Mapping[str, Picture]) -> str:
    manifest = bundle.manifest
    return load_template().render(
        manifest=manifest,
        figures=figures,
        measured=figures.measured,
        facts=list_facts(manifest, figures),
        depths=sorted({*PRECISION_DEPTHS, *(k for domain in figures.domains for k in domain.precision)}),
        pictures={name: picture.svg for name, picture in pictures.items()},
        tried=choose_trials(figures),
        own_rows=are_own_rows(figures.domains),
        few=figures.measured.sample == CALIBRATION_SAMPLE,
        provenance=describe_origin(manifest),
        disk=list_files(manifest),
    )


@cache
def load_template() -> Template:
    """The page's template, with its filters."""
    environment = Environment(
        loader=PackageLoader("shortlist_exporter", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "share": format_share,
        "size": format_bytes,
        "count": format_count,
        "over": format_fraction,
        "word": format_word,
        "seconds": format_seconds,
    }
    return environment.get_template("page.html.j2")


def list_facts(manifest: Manifest, figures: Figures) -> list[Fact]:
    """The figures that matter most, a handful."""
    sample, this_head = figures.measured, figures.measured.points[0]
    facts = [make_precision_fact(k, figures) for k in (1, 5) if k in figures.domains[0].precision]
    if this_head.times_dense is not None:
        text = f"one row in {format_count(this_head.us or 0)} µs, {sample.threads} thread{'s' * (sample.threads > 1)}"
        facts.append(("Against dense", f"{this_head.times_dense:.3g} times", f"as fast: {text}"))
    candidates = sample.candidates.summary["mean"]
    facts.append(("Classes scored", format_count(candidates), f"of {manifest.classes:,}, mean per row"))
    if this_head.macs is not None:
        facts.append(("Multiply-adds", format_fraction(this_head.macs), "of dense"))
    if sample.calibration is not None and figures.domains[0].error_mean is not None:
        facts.append(make_error_fact(figures.domains[0]))
    if figures.loading is not None and figures.loading.private is not None:
        mapped_bytes, seconds = format_bytes(figures.loading.mapped or 0), format_seconds(figures.loading.seconds)
        text = f"private; {mapped_bytes} mapped, {seconds} to load"
        facts.append(("Memory", format_bytes(figures.loading.private), text))
    return facts


def make_precision_fact(k: int, figures: Figures) -> Fact:
    """P@k on the first sample."""
    precision = figures.domains[0].precision[k]
    promise = f", {format_share(figures.promise[k])} promised" if k in figures.promise else ""
    return (
        f"P@{k}",
        format_share(precision.mean),
        f"{format_share(precision.low)} to {format_share(precision.high)}{promise}",
    )


def make_error_fact(domain: Domain) -> Fact:
    """The errors of log-probabilities on the first sample, with and without the rows whose best class was missed."""
    meaning = f"mean; 99 % of rows under {domain.error_p99:.2g}"
    if domain.error_hits_mean is not None:
        meaning += f"; where the best class was found {domain.error_hits_mean:.2g} and {domain.error_hits_p99:.2g}"
    return "Log-prob error", f"{domain.error_mean:.2g} nats", meaning


def choose_trials(figures: Figures) -> list[Point]:
    """What tune tried: the fronts by time and by cost first, then the rest, the most precise first."""
    if figures.tried is None:
        return []
    points = [point for point in figures.tried.points if 1 in point.precision]
    by_time = find_front([point for point in points if point.times_dense], time_of)
    by_cost = find_front([point for point in points if point.macs], cost_of)
    rest = sorted(points, key=lambda point: -point.precision[1])
    by_label: dict[str, Point] = {}
    for point in [*by_time, *by_cost, *rest]:
        by_label.setdefault(point.label, point)
    return sorted(list(by_label.values())[:MAX_TRIED_ROWS], key=lambda point: point.us or 0)


def list_files(manifest: Manifest) -> list[tuple[str, int]]:
    """The bundle's largest files and the rest together, bytes."""
    sizes = sorted(((entry.size, name) for name, entry in manifest.files.items()), reverse=True)
    largest = [(name, bytes_) for bytes_, name in sizes[:6]]
    rest = sum(bytes_ for bytes_, _ in sizes[6:])
    return [*largest, (f"{len(sizes) - 6} more files", rest)] if rest else largest


def describe_origin(manifest: Manifest) -> dict[str, str]:
    """Where the bundle came from, in words."""
    origin = manifest.provenance
    versions = ", ".join(f"{name} {version}" for name, version in origin.get("versions", {}).items())
    fit = {key: value for key, value in manifest.fit.items() if not isinstance(value, list | dict)}
    lines = {
        "method": f"{manifest.method}, plan {manifest.plan}, reference {manifest.reference}",
        "settings": format_options(manifest.settings.model_dump()),
        "made with": format_options(fit),
        "seed": str(manifest.seed),
        "contexts": f"{origin.get('contexts_rows', 0):,} rows, SHA-256 {origin.get('contexts_sha256', 'unknown')}",
        "notes": "; ".join(origin.get("notes", [])),
        "weights": f"{manifest.dtype}, SHA-256 {origin.get('weights_sha256', 'unknown')}",
        "made": f"{origin.get('time', 'unknown')}, {versions}",
        "command": " ".join(map(str, origin.get("command", []))),
        "manifest": manifest.digest,
    }
    crossover = manifest.dense_crossover
    lines["answered by dense"] = f"from {crossover} rows a request" if crossover else "never for the number of rows"
    return {name: text for name, text in lines.items() if text}


def format_options(values: Mapping[str, object]) -> str:
    """Options as `name=value, ...`; `none` where there are none."""
    return ", ".join(f"{name}={format_option(value)}" for name, value in values.items()) or "none"


def format_option(value: object) -> str:
    """An option's value, numbers short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_share(value: float) -> str:
    """A share with as many digits as it takes to tell it from 1."""
    return "1" if value == 1 else f"{value:.4f}".removeprefix("0")


def format_bytes(value: float) -> str:
    """A number of bytes with a readable unit."""
    for unit in BYTE_UNITS:
        if abs(value) < 1024 or unit == BYTE_UNITS[-1]:
            return f"{value:,.0f} {unit}" if unit == BYTE_UNITS[0] else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes every size")


def format_count(value: float) -> str:
    """A number of things, a mean with a digit where it is small."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def format_fraction(value: float) -> str:
    """A part of dense as a fraction."""
    return f"1/{1 / value:.3g}" if 0 < value < 1 else f"{value:.3g}"


def format_seconds(value: float) -> str:
    """A number of seconds with a readable unit."""
    return f"{value:.2g} s" if value < 10 else f"{value:,.0f} s"


def format_word(text: str) -> str:
    """A class's name with what does not print spelled out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text) or "(empty)"
