"""Write a report's page, pictures and JSON, all of them or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from shortlist.bundle.files import REPORT_FOLDER
from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import make_parent_folders, make_workplace
from shortlist.core.extras import require
from shortlist.errors import ShortlistError
from shortlist.head import Head

from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.records.report import FIGURES_FILE, HELD_OUT, Domain, Figures, SampleFigures, read_figures
from shortlist_exporter.report.measure.figures import measure_domain, measure_sample
from shortlist_exporter.report.measure.loading import measure_in_process
from shortlist_exporter.report.measure.samples import Sample, read_calibration

from .measure import tune_record
from .verdict import choose_promise, give_verdict, judge_domain

REPORT_PAGE_FILE = "index.html"


def write_report(
    bundle: Bundle,
    head: Head,
    samples: list[Sample],
    out: Path | None = None,
    promise: Mapping[int, float] | None = None,
    progress: Progress = quiet,
) -> Figures:
    """Measure `samples` (the bundle's calibration where there are none) and write the report to `out`.

    out: the bundle's own report/ by default. promise: P@k by k that the export was given.
    Raises ShortlistError where it cannot be written: then `out` is as before. Raises MissingExtra.
    """
    for module in ("matplotlib", "jinja2"):
        require(module)
    with replace_files(out or bundle.folder / REPORT_FOLDER) as folder:
        figures = gather_figures(bundle, head, samples, promise or {}, progress)
        progress("pictures", 0, 1)
        write_files(folder, bundle, figures)
    return figures


def list_asked_depths(bundle: Bundle) -> tuple[int, ...]:
    """Each k that an earlier report on the bundle, its export or its tuning asks for by itself, ascending."""
    earlier, trials, quality = read_figures(bundle), tune_record.read_trials(bundle.folder), bundle.manifest.quality
    asked, measured = (earlier.asked if earlier else ()), (quality.p_at if quality else ())
    return tuple(sorted({*asked, *measured, *(trials.targets if trials else ())}))


def gather_figures(
    bundle: Bundle, head: Head, samples: list[Sample], export_promise: Mapping[int, float], progress: Progress
) -> Figures:
    """The figures of all samples, and the verdict on the promise: the export's, else an earlier report's."""
    progress("figures of the report", 0, 1)
    earlier = read_figures(bundle)
    main, domains = measure_samples(bundle, head, samples, earlier)
    targets = dict(export_promise) or (earlier.asked if earlier is not None else {})
    trials = tune_record.read_trials(bundle.folder)
    promise, source = choose_promise(bundle.manifest.quality, targets, trials, bundle.manifest.promise)
    verdicts = [judge_domain(one, promise) for one in domains]
    progress("load time", 0, 1)
    return Figures(
        digest=bundle.manifest.digest,
        asked=targets,
        promise=promise,
        promise_source=source,
        verdict=give_verdict(verdicts, promise, source),
        domains=verdicts,
        measured=main,
        loading=measure_in_process(bundle.folder, head.device, head.threads),
        tried=trials,
    )


def measure_samples(
    bundle: Bundle, head: Head, samples: list[Sample], earlier: Figures | None
) -> tuple[SampleFigures, list[Domain]]:
    """What the first sample shows, and all samples as domains.

    What an earlier report measured on the export's held-out rows is kept: those rows are not in the bundle.
    """
    if earlier is not None and not samples:
        return earlier.measured, earlier.domains
    if earlier is not None and earlier.measured.sample == HELD_OUT:
        main, first_domain = earlier.measured, next(one for one in earlier.domains if one.name == HELD_OUT)
    else:
        first, *samples = samples or [read_calibration(head, bundle, list_asked_depths(bundle))]
        main, first_domain = measure_sample(head, first)
    return main, [first_domain, *(measure_domain(head, sample) for sample in samples)]


def write_files(folder: Path, bundle: Bundle, figures: Figures) -> None:
    """Write the page, its pictures and `figures.json` to `folder`."""
    from shortlist_exporter.report.page.page import (
        render_page,  # these need packages that the command must be able to do without
    )
    from shortlist_exporter.report.page.pictures import draw_pictures

    pictures = draw_pictures(figures)
    for name, picture in pictures.items():
        (folder / f"{name}.png").write_bytes(picture.png)
    (folder / FIGURES_FILE).write_text(figures.model_dump_json(indent=1) + "\n", "utf-8")
    (folder / REPORT_PAGE_FILE).write_text(render_page(bundle, figures, pictures), "utf-8")


@contextlib.contextmanager
def replace_files(out: Path) -> Iterator[Path]:
    """A temporary folder whose files go to `out` when the block ends, the page last; else `out` is as before."""
    try:
        with make_parent_folders(out):
            fresh = not out.exists()
            out.mkdir(exist_ok=True)
            try:
                with make_workplace(out / REPORT_PAGE_FILE) as place:  # which removes what a killed report left
                    (place / REPORT_FOLDER).mkdir()
                    yield place / REPORT_FOLDER
                    move_files(place / REPORT_FOLDER, out)
            finally:
                if fresh:
                    with contextlib.suppress(OSError):  # it is full of what was wanted
                        out.rmdir()
    except OSError as error:
        reason = error.strerror or error
        sentence = f"no report can be written to {out} ({reason}): name another folder by --out"
        raise ShortlistError(sentence) from error


def move_files(place: Path, out: Path) -> None:
    """Every file to `out`; pictures of an earlier report that this one does without go away."""
    names = {path.name for path in place.iterdir()}
    for name in sorted(names, key=lambda name: name == REPORT_PAGE_FILE):
        (place / name).replace(out / name)
    for old in out.glob("*.png"):
        if old.name not in names:
            old.unlink()
