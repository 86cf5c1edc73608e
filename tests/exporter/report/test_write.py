"""Files of a report: all of them or none, and never at the cost of the bundle."""

import json
import subprocess
import sys

import numpy as np
import pytest
import shortlist
from safetensors.numpy import save_file
from shortlist.bundle.reader import Bundle
from shortlist.cli.dispatch import main
from shortlist.errors import MissingExtra, ShortlistError
from shortlist.head import Head
from shortlist_exporter.export import seal
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.records.report import HELD_OUT, Figures, read_figures
from shortlist_exporter.report.page import pictures
from shortlist_exporter.report.write import write_report

from tests.exporter.report.conftest import CONTEXTS, OPTIONS, Page
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

PICTURES = {"front", "candidates", "parts", "copies", "calibration", "domains"}
PNG = b"\x89PNG\r\n"


def listing(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def figures_in(folder):
    return Figures.model_validate_json((folder / "figures.json").read_bytes())


def strangers(tmp_path):
    """Contexts of a direction that the bundle was not fitted on."""
    rows = np.random.default_rng(5).standard_normal((300, 16)).astype(np.float32)
    np.save(tmp_path / "strange.npy", rows * np.linspace(0.1, 9, 16, dtype=np.float32))
    return tmp_path / "strange.npy"


def test_export_writes_page_pictures_and_figures(report_bundle):
    report = report_bundle / "report"
    assert {path.name for path in report.iterdir()} == {"index.html", "figures.json"} | {f"{n}.png" for n in PICTURES}
    assert all((report / f"{name}.png").read_bytes().startswith(PNG) for name in PICTURES)
    assert Page((report / "index.html").read_text("utf-8")).headings == [
        "Precision against time and cost",
        "Where it holds",
        "Classes scored for a row",
        "Clusters: size and use",
        "Class frequency against copies",
        "Worst clusters",
        "Answers lost most often",
        "Log-probabilities",
        "Memory, disk and load time",
        "Quality and provenance",
    ]


def test_a_promise_at_any_k_is_measured_on_every_sample(tmp_path):
    """One that was not measured counted as kept."""
    folder = tmp_path / "lm" / "1"
    request = Request("l2s", options=OPTIONS, promise={20: 0.2}, report=True, threads=1)
    export(make_dense(), CONTEXTS, folder, request)
    assert list(figures_in(folder / "report").domains[0].precision) == [1, 5, 10, 20]
    assert main(["report", str(folder), "--contexts", str(strangers(tmp_path))]) == 0
    figures = figures_in(folder / "report")
    assert [list(domain.precision) for domain in figures.domains] == [[1, 5, 10, 20]] * 2
    assert figures.verdict.sentence.startswith("P@20 0.2, asked for at the export, ")
    assert '<th class="n">P@20</th>' in (folder / "report" / "index.html").read_text("utf-8")


def test_each_k_that_the_export_measured_is_measured_on_every_sample(tmp_path):
    folder = tmp_path / "lm" / "1"
    export(make_dense(), CONTEXTS, folder, Request("l2s", options=OPTIONS, at=(3, 20), report=True, threads=1))
    assert main(["report", str(folder), "--contexts", str(strangers(tmp_path))]) == 0
    figures = figures_in(folder / "report")
    assert [list(domain.precision) for domain in figures.domains] == [[1, 3, 5, 10, 20]] * 2


def test_the_page_needs_no_other_file_and_no_network(report_bundle):
    text = (report_bundle / "report" / "index.html").read_text("utf-8")
    page = Page(text)
    assert "svg" in page.tags
    assert page.tags & {"script", "link", "img", "iframe", "object", "embed"} == set()
    assert [address for address in page.addresses if not address.startswith("#")] == []
    assert "@import" not in text
    assert "url(http" not in text


def test_the_report_is_outside_what_is_hashed(report_bundle):
    bundle = Bundle(report_bundle)
    assert not any(name.startswith("report/") for name in bundle.manifest.files)
    shortlist.load(report_bundle, threads=1)


def test_sections_that_do_not_apply_are_left_out(tmp_path):
    """A preview has no clusters and always scores as many classes; the dense layer has nothing to be held against."""
    for method, options, absent in [
        ("svd", {"basis": "context", "width": "6", "full_view": "30"}, {"candidates", "parts", "copies"}),
        ("full", {}, PICTURES - {"domains"}),
    ]:
        out = tmp_path / method / "1"
        export(make_dense(), CONTEXTS, out, Request(method, options, threads=1, fallback=False, report=True))
        there = {path.stem for path in (out / "report").glob("*.png")}
        assert there == PICTURES - absent
        headings = " ".join(Page((out / "report" / "index.html").read_text("utf-8")).headings)
        assert "lusters" not in headings
        assert ("Log-probabilities" in headings) == (method == "svd")


def test_without_a_dense_head_nothing_is_held_against_a_truth(tmp_path):
    head = make_head(tmp_path, make_dense(), make_contexts(), keep_dense=False)
    figures = write_report(Bundle(head.folder), head, [])
    assert (figures.verdict.status, figures.domains[0].precision) == ("unknown", {})
    assert figures.measured.calibration is None
    headings = Page((head.folder / "report" / "index.html").read_text("utf-8")).headings
    assert headings == ["Memory, disk and load time", "Quality and provenance"]


def test_held_out_figures_are_kept_and_other_contexts_added(bundle_folder, tmp_path, capsys):
    before = figures_in(bundle_folder / "report")
    assert before.measured.sample == HELD_OUT
    assert main(["report", str(bundle_folder), "--contexts", str(strangers(tmp_path)), "--threads", "1"]) == 0
    after = figures_in(bundle_folder / "report")
    assert (after.measured, after.domains[0], after.asked) == (before.measured, before.domains[0], {1: 0.5})
    assert [one.name for one in after.domains] == [HELD_OUT, "strange"]
    assert after.domains[1].rows == 300


def test_a_promise_that_does_not_hold_elsewhere_is_said(bundle_folder, tmp_path, capsys):
    strange = strangers(tmp_path)
    (bundle_folder / "report" / "figures.json").unlink()  # what the export was asked for is in it
    assert main(["report", str(bundle_folder), "--contexts", str(strange), "--threads", "1"]) == 0
    output = capsys.readouterr()
    assert output.out == f"{bundle_folder / 'report' / 'index.html'}\n"
    assert "warning: it does not hold on strange: P@1 is 0." in output.err
    text = (bundle_folder / "report" / "index.html").read_text("utf-8")
    assert "Promise not kept on strange" in text
    assert "strange is not like the contexts that this bundle was made for" in text


def test_kinds_that_break_the_promise_and_documents_that_miss_are_marked(bundle_folder, tmp_path):
    path, strange = bundle_folder / "report" / "figures.json", np.load(strangers(tmp_path))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"asked": {"1": 0.6}}))
    rows = np.concatenate([CONTEXTS.contexts[:20], strange])
    tensors = {"contexts": rows, "documents": (np.arange(320) >= 20).astype(np.int32)}
    save_file(tensors, tmp_path / "both.safetensors", {"kinds": json.dumps({"own": [0], "other": [1]})})
    assert main(["report", str(bundle_folder), "--contexts", str(tmp_path / "both.safetensors")]) == 0
    domain = figures_in(bundle_folder / "report").domains[1]
    text = (bundle_folder / "report" / "index.html").read_text("utf-8")
    assert domain.kinds["other"].precision.high < 0.6 < domain.kinds["own"].precision.high
    assert '<tr class="broken"><td>other</td>' in text
    assert "<tr><td>own</td>" in text
    listed = text[text.index("both: 2 documents of enough rows") :].partition("</p>")[0]
    assert listed.count("(document ") == sum(one.p_at_1 < 1 for one in domain.documents)


def test_figures_of_another_bundle_are_not_kept(bundle_folder):
    path = bundle_folder / "report" / "figures.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"digest": "another"}))
    assert read_figures(Bundle(bundle_folder)) is None
    path.write_text("{")
    assert read_figures(Bundle(bundle_folder)) is None


def test_without_contexts_the_bundle_s_own_rows_are_measured_and_called_few(tmp_path):
    head = make_head(tmp_path, make_dense(), make_contexts())
    out = tmp_path / "elsewhere" / "report"
    figures = write_report(Bundle(head.folder), head, [], out)
    assert figures.measured.rows == 40
    assert "far too few" in (out / "index.html").read_text("utf-8")
    assert not (head.folder / "report").exists()


def test_an_unwritable_report_leaves_the_bundle_as_it_was(bundle_folder, capsys):
    picture = bundle_folder / "report" / "front.png"
    before = listing(bundle_folder)
    for out, reason in ((picture, "(File exists)"), (picture / "deeper", "(")):
        assert main(["report", str(bundle_folder), "--out", str(out), "--threads", "1"]) == 1
        output = capsys.readouterr()
        sentence = output.err.splitlines()[-1]
        assert sentence.startswith(f"shortlist report: no report can be written to {out} {reason}")
        assert sentence.endswith("name another folder by --out")
        assert output.out == ""
    assert listing(bundle_folder) == before


def test_a_disk_that_fills_up_leaves_an_earlier_report(bundle_folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = listing(bundle_folder)
    bundle = Bundle(bundle_folder)
    monkeypatch.setattr(pictures, "draw_pictures", full)
    with pytest.raises(ShortlistError, match=r"no report can be written to .*No space left"):
        write_report(bundle, Head(bundle, "cpu", 1), [])
    assert listing(bundle_folder) == before


def test_what_a_killed_report_left_is_removed_by_the_next(bundle_folder):
    report = bundle_folder / "report"
    script = f"""
import os
from pathlib import Path
from shortlist_exporter.report.write import replace_files
with replace_files(Path({str(report)!r})) as folder:
    (folder / "front.png").write_bytes(b"half")
    os.kill(os.getpid(), 15)
"""
    names = sorted(path.name for path in report.iterdir())
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -15
    assert len(list(report.iterdir())) == len(names) + 1
    assert main(["report", str(bundle_folder), "--threads", "1"]) == 0
    assert sorted(path.name for path in report.iterdir()) == names


def test_a_report_that_fails_fails_no_export(tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise ShortlistError("no report can be written to report (No space left on device): name another folder")

    monkeypatch.setattr(seal, "write_report", fail)
    out = tmp_path / "lm" / "1"
    export(make_dense(), CONTEXTS, out, Request("l2s", OPTIONS, threads=1, fallback=False, report=True))
    assert "No space left on device" in caplog.text
    assert f"then run `shortlist report {out}`" in caplog.text
    assert not (out / "report").exists()
    shortlist.load(out, threads=1)


def test_a_missing_package_is_named(bundle_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    bundle = Bundle(bundle_folder)
    with pytest.raises(MissingExtra, match=r"matplotlib is not installed: run `pip install 'shortlist\[export\]'`"):
        write_report(bundle, Head(bundle, "cpu", 1), [])


def test_contexts_of_another_width(bundle_folder, tmp_path, capsys):
    np.save(tmp_path / "wide.npy", np.ones((5, 17), np.float32))
    assert main(["report", str(bundle_folder), "--contexts", str(tmp_path / "wide.npy"), "--threads", "1"]) == 1
    assert "have d = 17 but the bundle 16: capture both alike" in capsys.readouterr().err.splitlines()[-1]
