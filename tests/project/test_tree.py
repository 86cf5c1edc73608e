"""What holds for the project as a whole."""

import ast
import importlib
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import shortlist
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from shortlist.core.extras import EXTRA_OF_MODULE, MODULES_OF_EXTRA

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("service", "exporter", "models", "benchmarks", "tools")
MOST_MODULES = 12  # of a folder, `__init__` and `conftest` apart
MOST_LINES = 300  # of a module
WIDEST = 120  # characters of a line of C; ruff measures Python
MOST_BODY_LINES = 30  # of a function in C
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8").splitlines()  # packages, comments and blank lines
PINS = [Requirement(line) for line in CONSTRAINTS if line.strip() and not line.startswith("#")]
# Of packages that are not imported by their own name; accelerate is what transformers loads models by.
IMPORT_NAMES = {
    "accelerate": "transformers",
    "faiss-cpu": "faiss",
    "onnxruntime-gpu": "onnxruntime",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "pillow": "PIL",
    "python-json-logger": "pythonjsonlogger",
}
PARENTS = ("service", "exporter", "models")

# What a package may never import, wherever in its code: exporter -> models, exporter -> service, never back.
FORBIDDEN_IMPORTS = {
    "service/shortlist": {"torch", "onnx", "transformers", "gguf", "shortlist_exporter", "shortlist_models"},
    "models/shortlist_models": {"onnx", "onnxruntime", "shortlist", "shortlist_exporter"},
}
# Bridges, each of which is imported by those alone who have the library that it is for.
BRIDGES = {
    "service/shortlist/integrations/transformers.py": {"torch"},
    "service/shortlist/integrations/lazy_scores.py": {"torch"},  # imported by the former alone
    "service/shortlist/integrations/draws.py": {"torch"},  # likewise
}
# A folder of somebody's machine at the start of a path.
ABSOLUTE = re.compile(r"(?<![\w./~-])/(?:home|Users|root|work)/\w")


def direct_dependencies() -> set[str]:
    """Canonical names of all packages that pyproject.toml asks for."""
    extras = PROJECT["optional-dependencies"].values()
    lines = PROJECT["dependencies"] + [line for extra in extras for line in extra]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imports(path: Path) -> set[str]:
    """Top-level names that the module at `path` imports, anywhere in it; relative imports left out."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def list_tracked_files() -> list[Path]:
    """Files that git tracks, or would; skips outside a checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if process.returncode:
        pytest.skip("not a git checkout: there is no telling which files are tracked")
    paths = [ROOT / name for name in process.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_version_is_newest_entry_of_changelog():
    newest = re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert PROJECT["version"] == newest[1]


def test_constraints_pin_every_direct_dependency():
    loose = [str(pin) for pin in PINS if [spec.operator for spec in pin.specifier] != ["=="]]
    assert not loose
    assert direct_dependencies() - {canonicalize_name(pin.name) for pin in PINS} == set()


def read_pins() -> dict[str, str]:
    """The version that constraints.txt pins of each package."""
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}


def test_what_the_service_and_the_exporter_need_has_a_bound_that_pip_keeps():
    """Without one pip keeps an older package that is there; fastapi 0.123 answered /metrics with 422."""
    extras = [PROJECT["optional-dependencies"][name] for name in ("cpu", "gpu", "serve", "export", "capture")]
    needs = [Requirement(line) for line in sum(extras, PROJECT["dependencies"])]
    assert [need.name for need in needs if [spec.operator for spec in need.specifier] != [">="]] == []
    pins = read_pins()
    assert [need.name for need in needs if not need.specifier.contains(pins[canonicalize_name(need.name)])] == []


def test_every_extra_is_used():
    """Tracing and a cluster's runtime were extras once, which nothing imported."""
    texts = [path.read_text("utf-8") for parent in PACKAGES for path in (ROOT / parent).rglob("*.py")]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    extras = {name: lines for name, lines in PROJECT["optional-dependencies"].items() if name != "dev"}
    names = {Requirement(line).name for lines in [PROJECT["dependencies"], *extras.values()] for line in lines}
    assert {name for name in names if IMPORT_NAMES.get(name, name.replace("-", "_")) not in words} == set()


def test_every_package_of_an_extra_is_named_by_it_where_it_is_missing():
    for extra in MODULES_OF_EXTRA:
        names = [Requirement(line).name for line in PROJECT["optional-dependencies"][extra]]
        modules = {IMPORT_NAMES.get(name, name.replace("-", "_").lower()) for name in names}
        assert modules - EXTRA_OF_MODULE.keys() == set(), extra


def test_serving_extras_ask_for_nothing_heavy():
    extras = PROJECT["optional-dependencies"]
    names = {Requirement(line).name for line in PROJECT["dependencies"] + extras["cpu"] + extras["serve"]}
    assert names & {"torch", "onnx", "transformers", "gguf"} == set()


@pytest.mark.parametrize("parent", PARENTS)
def test_parent_folders_hold_no_module(parent):
    assert [path.name for path in (ROOT / parent).glob("*.py")] == []


@pytest.mark.parametrize("package", FORBIDDEN_IMPORTS)
def test_packages_depend_one_way(package):
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    names = {str(path.relative_to(ROOT)): imports(path) & FORBIDDEN_IMPORTS[package] for path in modules}
    result = {path: some - BRIDGES.get(path, set()) for path, some in names.items()}
    assert {path: names for path, names in result.items() if names} == {}


def test_no_file_names_a_folder_of_one_machine():
    result = []
    for path in list_tracked_files():
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            if ABSOLUTE.search(line):
                result.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert result == []


def folders_of(parent: str) -> list[Path]:
    """`parent` and every folder below it that holds modules."""
    return sorted({path.parent for path in (ROOT / parent).rglob("*.py")})


@pytest.mark.parametrize("parent", [*PACKAGES, "examples", "tests"])
def test_folders_are_read_at_one_glance(parent):
    sizes = {
        str(folder.relative_to(ROOT)): len({path.stem for path in folder.glob("*.py")} - {"__init__", "conftest"})
        for folder in folders_of(parent)
    }
    assert sizes
    assert {folder: modules for folder, modules in sizes.items() if modules > MOST_MODULES} == {}


def test_folders_of_c_are_read_at_one_glance():
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in list_c_sources())
    assert {folder: files for folder, files in sizes.items() if files > MOST_MODULES} == {}


@pytest.mark.parametrize("parent", [*PACKAGES, "tests"])
def test_modules_are_short(parent):
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in (ROOT / parent).rglob("*.py")
    }
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def list_c_sources() -> list[Path]:
    sources = [path for parent in ("service", "tools") for path in (ROOT / parent).rglob("*.[ch]")]
    assert sources
    return sorted(sources)


def test_lines_of_c_are_narrow():
    lines = [(path.name, line) for path in list_c_sources() for line in path.read_text("utf-8").splitlines()]
    assert [f"{name}: {line}" for name, line in lines if len(line) > WIDEST] == []


NATIVE = sorted((ROOT / "service").rglob("*.[ch]"))


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_functions_of_c_are_short(path):
    bodies = re.findall(r"^[a-zA-Z][^;{}]*\) \{\n(.*?)^\}", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert [body.splitlines()[0] for body in bodies if len(body.splitlines()) > MOST_BODY_LINES] == []


def test_public_names():
    classes = {"AsyncClient", "BeamStep", "Client", "Head", "NamedLists", "RowLists", "ShortlistError", "TopK"}
    assert set(shortlist.__all__) == classes | {"beam_search", "beam_search_async", "errors", "load"}
    assert all(hasattr(shortlist, name) for name in shortlist.__all__)
    assert issubclass(shortlist.errors.BadInput, shortlist.ShortlistError)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shortlist", "load"),
        ("shortlist", "Client"),
        ("shortlist", "AsyncClient"),
        ("shortlist", "TopK"),
        ("shortlist", "beam_search"),
        ("shortlist", "beam_search_async"),
        ("shortlist.errors", "ShortlistError"),
        ("shortlist.head", "Head"),
        ("shortlist.head", "load"),
        ("shortlist.integrations.transformers", "attach"),
        ("shortlist.integrations.transformers", "detach"),
        ("shortlist.evaluation", "Evaluation"),
        ("shortlist.evaluation", "evaluate"),
        ("shortlist.bundle", "Bundle"),
        ("shortlist.cli", "main"),
        ("shortlist_exporter.export.request", "Request"),
        ("shortlist_exporter.export.run", "export"),
        ("shortlist_exporter.tuning.tuner", "tune"),
        ("shortlist_models", "FullSoftmax"),
        ("shortlist_models.ds.softmax", "DSSoftmax"),
    ],
)
def test_documented_imports_stay(module, name):
    assert callable(getattr(importlib.import_module(module), name))


def test_console_script_is_the_command_line():
    assert PROJECT["scripts"] == {"shortlist": "shortlist.cli:main"}
