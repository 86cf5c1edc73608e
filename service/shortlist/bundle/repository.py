"""A repository: `<name>/<version>/` folders of bundles; versions are integers."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from shortlist.core.checks import cut
from shortlist.errors import BadInput, NotFound

from .manifest import MANIFEST_FILE, MODEL_NAME

log = logging.getLogger(__name__)

NAME_PATTERN = re.compile(MODEL_NAME)


def scan(root: Path) -> dict[str, dict[int, Path]]:
    """Every bundle below `root`: name -> version -> folder, hidden and unfinished ones left out.

    Raises NotFound when `root` is no folder or holds no bundle.
    """
    versions_by_name = {name: find_versions(root / name) for name in list_names(root)}
    bundles = {name: by_version for name, by_version in versions_by_name.items() if by_version}
    if not bundles:
        raise NotFound(f"the repository {root} is empty: export a bundle to {root}/<name>/1 first")
    return bundles


def list_names(root: Path) -> list[str]:
    """The names in a repository that can name models; raises NotFound when `root` is no folder."""
    if not root.is_dir():
        raise NotFound(f"there is no repository at {root}: give a folder that holds <name>/<version>/ bundles")
    return sorted(path.name for path in root.iterdir() if NAME_PATTERN.fullmatch(path.name))


def check_name(name: str) -> None:
    """Raise BadInput when `name` cannot name a model: it travels in paths of requests."""
    if not NAME_PATTERN.fullmatch(name):
        raise BadInput(f"'{name}' cannot name a model: use letters, digits, '.', '_' and '-', as in repo/lm/1")


def list_bundles(root: Path, name: str) -> dict[int, Path]:
    """Version -> bundle folder of one model, ascending; raises NotFound where there is none."""
    folders = find_versions(root / name) if NAME_PATTERN.fullmatch(name) else {}
    if not folders:
        raise NotFound(f"Request for unknown model: '{cut(name)}' is not found in the repository: export it first")
    return folders


def find_versions(folder: Path) -> dict[int, Path]:
    """Version -> bundle folder, ascending; none, and a line in the log, where the folder cannot be listed."""
    try:
        folders = find_version_folders(folder)
    except OSError as error:
        log.warning(
            "%s cannot be listed (%s): give this user access to it, or its bundles are not served",
            *(folder, error.strerror),
        )
        return {}
    return {number: path for number, path in folders.items() if may_be_bundle(path)}


def find_version_folders(folder: Path) -> dict[int, Path]:
    """Version -> folder, ascending, whether a bundle is in it or not yet; raises OSError where it cannot be listed."""
    if not folder.is_dir():
        return {}
    numbered = {int(path.name): path for path in folder.iterdir() if re.fullmatch(r"[1-9][0-9]*", path.name)}
    return {number: numbered[number] for number in sorted(numbered) if numbered[number].is_dir()}


def may_be_bundle(folder: Path) -> bool:
    """Whether `folder` has a manifest, or hides whether it has: a load then says so."""
    try:
        return (folder / MANIFEST_FILE).is_file()
    except OSError:
        return True
