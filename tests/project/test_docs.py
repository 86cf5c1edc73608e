"""The guides say all that there is to say: options, settings, metrics, figures of one source."""

import argparse
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from shortlist.bundle.manifest import Manifest, read_manifest
from shortlist.bundle.settings import SETTINGS
from shortlist.cli.dispatch import COMMANDS
from shortlist.core.extras import require
from shortlist.server.app import create_app
from shortlist.server.codecs.v2_query import INPUT_DATATYPES
from shortlist.server.metrics.prometheus import Metrics
from shortlist.server.precision.schemas import DepthPrecision, ServedPrecision
from shortlist.server.precision.series import PrecisionSeries
from shortlist.server.settings import VARIABLES_ALONE, Settings
from shortlist_exporter.methods.adaptive import AdaptiveOptions
from shortlist_exporter.methods.cascade import CascadeOptions
from shortlist_exporter.methods.ds import DsOptions
from shortlist_exporter.methods.ds_svd import DsSvdOptions
from shortlist_exporter.methods.dsoftmax import DsoftmaxOptions
from shortlist_exporter.methods.grouped import GroupedOptions
from shortlist_exporter.methods.l2s import L2sOptions
from shortlist_exporter.methods.mixtures.mixtape import MixtapeOptions
from shortlist_exporter.methods.registry import METHODS
from shortlist_exporter.methods.svd import SvdOptions

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OPTIONS = {
    "svd": SvdOptions,
    "l2s": L2sOptions,
    "cascade": CascadeOptions,
    "grouped": GroupedOptions,
    "ds": DsOptions,
    "ds-svd": DsSvdOptions,
    "adaptive": AdaptiveOptions,
    "dsoftmax": DsoftmaxOptions,
    "mixtape": MixtapeOptions,
}
NO_DEFAULTS = ("required", "not written", "no promise")  # words of the column for options that have none
WIDEST = 120  # characters of a line, outside tables and code
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))
LOG_WIDTH = 100


def section(page, name):
    parts = re.split(r"^## (.*)$", (DOCS / page).read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[name]


def prose(page):
    """(number, line) of a page, without tables, pictures and code."""
    fenced = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fenced ^= line.startswith("```")
        if not fenced and not line.startswith(("|", "![", "```")):
            yield number, line


def tables(text):
    """Every table of a page, as a list of rows {column: cell}."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip(" *") for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        yield [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_narrow(page):
    width = LOG_WIDTH if page.parent.name == "log" else WIDEST
    assert [f"{page.name}:{number} has {len(line)}" for number, line in prose(page) if len(line) > width] == []


def test_every_page_of_the_log_is_in_its_index():
    pages = {page.name for page in (DOCS / "log").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((\S+\.md)\)", (DOCS / "log" / "index.md").read_text("utf-8"))) == pages


def test_pages_that_are_read_whole_are_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
    assert len((DOCS / "benchmarks.md").read_text("utf-8").splitlines()) <= 150


def test_figures_of_readme_are_those_of_results():
    (readme,) = (table for table in tables((ROOT / "README.md").read_text("utf-8")) if "head" in table[0])
    assert len(readme) == 3
    first = next(table for table in tables((DOCS / "results.md").read_text("utf-8")) if "times dense" in table[0])
    results = {row["head"]: row for row in first}
    for row in readme:
        assert row == {column: results[row["head"]][column] for column in row}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_lists_every_option(command):
    parser = argparse.ArgumentParser()
    require(COMMANDS[command][0]).configure(parser)
    options = {action.option_strings[0] for action in parser._actions if action.option_strings}
    page = (DOCS / "operations.md").read_text("utf-8") if command == "serve" else section("cli.md", f"`{command}`")
    assert {name for name in options - {"-h"} if not re.search(rf"`{name}[` ]", page)} == set()


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"serve"}))
def test_help_and_command_line_have_the_same_defaults(command):
    """What is required, numbers, and that the help of what takes a value names a default that the page has."""
    parser = argparse.ArgumentParser()
    require(COMMANDS[command][0]).configure(parser)
    actions = {name: action for action in parser._actions for name in action.option_strings}
    rows = [row for rows in tables(section("cli.md", f"`{command}`")) for row in rows if row.get("default")]
    named = [(actions[name], row["default"]) for row in rows for name in re.findall(r"`(--?[a-z0-9-]+)", row["option"])]
    assert named
    assert [action.dest for action, default in named if action.required != (default == "required")] == []
    silent = [action.dest for action, default in named if action.nargs != 0 and "default" not in action.help]
    assert set(silent) - {action.dest for action, default in named if default in NO_DEFAULTS} == set()
    plain = [(action, default.replace(",", "")) for action, default in named]
    numbers = [(action, float(default)) for action, default in plain if re.fullmatch(r"\d+(\.\d+)?", default)]
    assert [action.dest for action, default in numbers if action.default not in (None, default)] == []


def test_operations_list_every_setting():
    page = section("operations.md", "Settings")
    names = Settings.model_fields.keys() - {"repository", *VARIABLES_ALONE}
    wanted = {f"`--{name.replace('_', '-')}`" for name in names} | {
        f"`SHORTLIST_{name.upper()}`" for name in VARIABLES_ALONE
    }
    assert {each for each in wanted if each not in page} == set()


def test_operations_have_the_defaults_of_the_settings():
    """Those of numbers and of switches; the others are put into words."""
    rows = {
        name: row["default"]
        for row in next(tables(section("operations.md", "Settings")))
        for name in re.findall(r"`--([a-z-]+)`", row["flag"])
    }
    wanted = {
        name.replace("_", "-"): ("off", "on")[default] if isinstance(default, bool) else f"{default:,.15g}"
        for name, default in ((name, field.default) for name, field in Settings.model_fields.items())
        if isinstance(default, bool | int | float) and name != "port"
    }
    assert len(wanted) > 40
    assert {name for name, default in wanted.items() if default not in rows[name].split(", ")} == set()


def test_operations_list_every_figure_of_served_precision():
    names = {name for kind in (ServedPrecision, DepthPrecision) for name in kind.model_fields}
    page = section("operations.md", "Served precision")
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_operations_list_every_metric():
    registry = Metrics("0").registry
    PrecisionSeries(list, registry)
    text = generate_latest(registry).decode()
    names = set(re.findall(r"^# TYPE (shortlist_\w+) ", text, re.MULTILINE))
    assert names
    assert {name for name in names if name not in section("operations.md", "Metrics")} == set()


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"full"}))
def test_methods_list_every_option(method):
    page = section("methods.md", f"`{method}`") + (section("methods.md", "`ds`") if method == "ds-svd" else "")
    assert {name for name in OPTIONS[method].model_fields if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"full"}))
def test_methods_have_the_defaults_of_the_options(method):
    """Those of numbers and of switches that have a cell, or a place in one, for each option of their row."""
    rows = [row for rows in tables(section("methods.md", f"`{method}`")) for row in rows if "option" in row]
    cells = [(re.findall(r"`(\w+)`", row["option"]), row["default"].split(", ")) for row in rows]
    page = {
        name: default
        for names, cell in cells
        if len(names) == len(cell)
        for name, default in zip(names, cell, strict=True)
    }
    defaults = {name: OPTIONS[method].model_fields[name].default for name in page}
    code = {name: str(value).lower() for name, value in defaults.items() if isinstance(value, bool)}
    numbers = {name: value for name, value in defaults.items() if isinstance(value, int | float)}
    code = {name: f"{value:,.15g}" for name, value in numbers.items()} | code
    assert {name: default for name, default in page.items() if name in code} == code


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"full"}))
def test_ways_to_find_more_are_options_of_the_method(method):
    """Every word after `larger` and before a comma or `as in`, and what `--set` shows, is an option's name."""
    ways = METHODS[method].ways_to_find_more
    larger = re.search(r"a larger ([a-z_, ]+)", ways.partition(", as in")[0])
    names = set(re.split(r", | or ", larger[1]) if larger else []) | set(re.findall(r"--set (\w+)=", ways))
    assert names or "--method" in ways
    assert names <= OPTIONS[method].model_fields.keys()
    assert set(re.findall(r"--set (\w+)=", METHODS[method].ways_to_normalize)) <= OPTIONS[method].model_fields.keys()


def test_http_lists_every_route(small_repository):
    page = (DOCS / "http.md").read_text("utf-8")
    paths = create_app(Settings(repository=small_repository)).openapi()["paths"]
    endings = {re.sub(r"/versions/\{version\}", "", path).rpartition("/")[2] for path in paths}
    assert {ending for ending in endings if ending not in page} == set()


def test_http_lists_every_input_with_its_datatypes():
    """Those of a beam step stand on its own page."""
    pages = section("http.md", "`/v2/models/{name}/infer`") + section("decoding.md", "The step")
    lines = {name: [line for line in pages.splitlines() if f"`{name}`" in line] for name in INPUT_DATATYPES}
    missing = {
        name
        for name, datatypes in INPUT_DATATYPES.items()
        if not any(all(datatype in line for datatype in datatypes) for line in lines[name])
    }
    assert missing == set()


def test_bundle_format_lists_every_field():
    page = section("bundle-format.md", "Manifest")
    assert {name for name in Manifest.model_fields if f"`{name}`" not in page} == set()


def test_bundle_format_lists_every_part_of_the_provenance(small_repository):
    (row,) = (
        line for line in section("bundle-format.md", "Manifest").splitlines() if line.startswith("| `provenance`")
    )
    provenance = read_manifest(small_repository / "lm" / "1").provenance
    assert {name for name in provenance if f"`{name}`" not in row} == set()


def test_bundle_format_marks_the_settings_that_may_be_changed():
    lines = re.findall(r"^\| `(\w+)` \| (.*)$", section("bundle-format.md", "Manifest"), re.MULTILINE)
    marked = {plan: set(re.findall(r"`(\w+)`\*", line)) for plan, line in lines if plan in SETTINGS}
    wanted = {plan: set(kind.adjustable) for plan, kind in SETTINGS.items()}
    assert marked == wanted | {"mixture": set()}  # in the words of `grouped`


def test_bundle_format_lists_every_setting():
    rows = {
        row["plan"].strip("`"): row["settings"]
        for table in tables((DOCS / "bundle-format.md").read_text("utf-8"))
        for row in table
        if "settings" in row
    }
    missing = [
        f"{plan}: {name}"
        for plan, kind in SETTINGS.items()
        if plan != "mixture"
        for name in kind.model_fields
        if f"`{name}`" not in rows[plan]
    ]
    assert missing == []
