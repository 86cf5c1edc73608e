"""The page: one HTML file that needs no other, and no network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.reader import Bundle

from shortlist_exporter.records.report import CALIBRATION, Figures, Point
from shortlist_exporter.report.front import front
from shortlist_exporter.report.verdict import only_own_rows

from .pictures import Picture, cost_of, time_of

MOST_TRIED = 40  # rows of the table; the JSON has all
UNITS = ("bytes", "KiB", "MiB", "GiB")
Fact = tuple[str, str, str]  # name, figure, what it means


def page(bundle: Bundle, figures: Figures, drawn: Mapping[str, Picture]) -> str:
    """The whole page as text."""
    manifest = bundle.manifest
    return template().render(
        manifest=manifest,
        figures=figures,
        measured=figures.measured,
        facts=facts(manifest, figures),
        pictures={name: picture.svg for name, picture in drawn.items()},
        tried=best_tried(figures),
        own_rows=only_own_rows(figures.domains),
        few=figures.measured.sample == CALIBRATION,
        provenance=provenance(manifest),
        disk=disk(manifest),
    )


@cache
def template() -> Template:
    """The page's template, with its filters."""
    environment = Environment(
        loader=PackageLoader("shortlist_exporter", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "share": share,
        "size": size,
        "count": count,
        "over": over,
        "word": word,
        "seconds": seconds,
    }
    return environment.get_template("page.html.j2")


def facts(manifest: Manifest, figures: Figures) -> list[Fact]:
    """The figures that matter most, a handful."""
    measured, own = figures.measured, figures.measured.points[0]
    found = [precision_fact(k, figures) for k in (1, 5) if k in figures.domains[0].precision]
    if own.times_dense is not None:
        text = f"one row in {count(own.us or 0)} µs, {measured.threads} thread{'s' * (measured.threads > 1)}"
        found.append(("Against dense", f"{own.times_dense:.3g} times", f"as fast: {text}"))
    scored = measured.candidates.summary["mean"]
    found.append(("Classes scored", count(scored), f"of {manifest.classes:,}, mean per row"))
    if own.macs is not None:
        found.append(("Multiply-adds", over(own.macs), "of dense"))
    if measured.calibration is not None and figures.domains[0].error_mean is not None:
        p99 = figures.domains[0].error_p99
        found.append(
            ("Log-prob error", f"{figures.domains[0].error_mean:.2g} nats", f"mean; 99 % of rows under {p99:.2g}")
        )
    if figures.loading is not None and figures.loading.private is not None:
        text = f"private; {size(figures.loading.mapped or 0)} mapped, {seconds(figures.loading.seconds)} to load"
        found.append(("Memory", size(figures.loading.private), text))
    return found


def precision_fact(k: int, figures: Figures) -> Fact:
    """P@k on the first sample."""
    found = figures.domains[0].precision[k]
    promised = f", {share(figures.promise[k])} promised" if k in figures.promise else ""
    return f"P@{k}", share(found.mean), f"{share(found.low)} to {share(found.high)}{promised}"


def best_tried(figures: Figures) -> list[Point]:
    """What tune tried: the fronts by time and by cost first, then the rest, the most precise first."""
    if figures.tried is None:
        return []
    points = [point for point in figures.tried.points if 1 in point.precision]
    fronts = front([p for p in points if p.times_dense], time_of) + front([p for p in points if p.macs], cost_of)
    rest = sorted(points, key=lambda point: -point.precision[1])
    seen: dict[str, Point] = {}
    for point in [*fronts, *rest]:
        seen.setdefault(point.label, point)
    return sorted(list(seen.values())[:MOST_TRIED], key=lambda point: point.us or 0)


def disk(manifest: Manifest) -> list[tuple[str, int]]:
    """The bundle's largest files and the rest together, bytes."""
    sizes = sorted(((entry.size, name) for name, entry in manifest.files.items()), reverse=True)
    largest = [(name, bytes_) for bytes_, name in sizes[:6]]
    rest = sum(bytes_ for bytes_, _ in sizes[6:])
    return [*largest, (f"{len(sizes) - 6} more files", rest)] if rest else largest


def provenance(manifest: Manifest) -> dict[str, str]:
    """Where the bundle came from, in words."""
    made = manifest.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made.get("versions", {}).items())
    fit = {key: value for key, value in manifest.fit.items() if not isinstance(value, list | dict)}
    lines = {
        "method": f"{manifest.method}, plan {manifest.plan}, reference {manifest.reference}",
        "settings": pairs(manifest.settings.model_dump()),
        "made with": pairs(fit),
        "seed": str(manifest.seed),
        "contexts": f"{made.get('contexts_rows', 0):,} rows, SHA-256 {made.get('contexts_sha256', 'unknown')}",
        "weights": f"{manifest.dtype}, SHA-256 {made.get('weights_sha256', 'unknown')}",
        "made": f"{made.get('time', 'unknown')}, {versions}",
        "command": " ".join(map(str, made.get("command", []))),
        "manifest": manifest.digest,
    }
    crossover = manifest.dense_crossover
    lines["answered by dense"] = f"from {crossover} rows a request" if crossover else "never for the number of rows"
    return {name: text for name, text in lines.items() if text}


def pairs(values: Mapping[str, object]) -> str:
    """`name=value, ...`."""
    return ", ".join(f"{name}={plain(value)}" for name, value in values.items()) or "none"


def plain(value: object) -> str:
    """An option's value, numbers short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def share(value: float) -> str:
    """A share with as many digits as it takes to tell it from 1."""
    return "1" if value == 1 else f"{value:.4f}".removeprefix("0")


def size(value: float) -> str:
    """Bytes for people."""
    for unit in UNITS:
        if abs(value) < 1024 or unit == UNITS[-1]:
            return f"{value:,.0f} {unit}" if unit == UNITS[0] else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes every size")


def count(value: float) -> str:
    """A number of things, a mean with a digit where it is small."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def over(value: float) -> str:
    """A part of dense as a fraction."""
    return f"1/{1 / value:.3g}" if 0 < value < 1 else f"{value:.3g}"


def seconds(value: float) -> str:
    """A time for people."""
    return f"{value:.2g} s" if value < 10 else f"{value:,.0f} s"


def word(text: str) -> str:
    """A class's name with what does not print spelled out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text) or "(empty)"
