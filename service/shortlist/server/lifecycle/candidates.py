"""Which versions lie in the repository, and which of them could be served."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from shortlist.bundle.repository import find_version_folders, list_names, may_be_bundle
from shortlist.errors import BundleError, NotFound

from .arrivals import Arrivals, Signature, take_signature
from .declaration import DECLARATION_FILE, Declaration, check_pinned, read_declaration
from .version_table import VersionTable, place_alias

log = logging.getLogger(__name__)

Folders = Mapping[int, Path]  # by version


class Candidates:
    """The versions of a repository that could be served: their files are there, and are not those that failed.

    latest: so many of the newest versions are served where a model does not say, None for all. arrivals: of a
    repository that is looked at again and again; without, versions are taken as they are.
    rejections: the files of versions that failed, which are tried again once they change.
    """

    def __init__(self, repository: Path, latest: int | None, arrivals: Arrivals | None) -> None:
        self.repository, self.latest, self.arrivals = repository, latest, arrivals
        self.rejections: dict[Path, Signature] = {}
        self.warnings: dict[str, str | None] = {}  # the latest about each model, which is logged once

    def warn(self, name: str, fault: str | None) -> None:
        """Log what is wrong with a model, or with the repository where the name is empty, unless it was so before."""
        if fault is not None and self.warnings.get(name) != fault:
            log.error("%s", fault)
        self.warnings[name] = fault

    @property
    def has_repository(self) -> bool:
        """Whether the last look found models in the repository; so, too, before the first one."""
        return self.warnings.get("") is None

    def list_models(self) -> list[str] | None:
        """The names of all models; None, and a line in the log, where the repository is away, be it for a while."""
        try:
            names = [name for name in list_names(self.repository) if self.may_have_versions(name)]
        except (NotFound, OSError) as error:
            self.warn("", f"{error}; what is served stays")
            return None
        if names and self.warnings.get("") is not None:
            log.warning("the repository %s is there again", self.repository)
        self.warn("", None if names else f"the repository {self.repository} is empty; what is served stays")
        return names or None

    def may_have_versions(self, name: str) -> bool:
        """Whether a model has versions, or hides whether it has: its own update says so, and others are looked at."""
        try:
            return bool(self.find_folders(name))
        except OSError:
            return True

    def find_folders(self, name: str) -> Folders:
        """The folders of a model's versions; where nobody looks again, those with a manifest. Raises OSError."""
        folders = find_version_folders(self.repository / name)
        if self.arrivals is not None:
            return folders
        return {version: folder for version, folder in folders.items() if may_be_bundle(folder)}

    def declare(self, table: VersionTable, versions: Collection[int] = ()) -> tuple[Declaration, str | None]:
        """What a model's file declares, which is logged when it is new; where it is wrong, the table's own, and why.

        versions: that lie in the repository.
        """
        home = self.repository / table.name
        try:
            declaration, fault = read_declaration(home), None
            check_pinned(declaration, home, versions)
        except BundleError as error:
            declaration, fault = table.declaration, str(error)
        if declaration != table.declaration or (fault is None and table.fault is not None):
            self.log_declaration(table.name, declaration)
        self.warn(table.name, fault)
        return declaration, fault

    def log_declaration(self, name: str, declaration: Declaration) -> None:
        """Log what is declared of a model now."""
        if not (self.repository / name / DECLARATION_FILE).is_file():
            log.info("model '%s' has no %s any more", name, DECLARATION_FILE)
            return
        content = declaration.model_dump_json(exclude_defaults=True)
        log.info("model '%s' is served as its %s declares: %s", name, DECLARATION_FILE, content)

    def choose(self, table: VersionTable, folders: Folders, skipped: Collection[int] = ()) -> set[int]:
        """Which versions of a model are to be served, of those that could be and are not among the skipped."""
        usable = {
            version: folder
            for version, folder in folders.items()
            if version not in skipped and self.is_usable(table, version, folder)
        }
        aliases = table.declaration.aliases.items()
        places = {place_alias(alias.version, table.before.get(name), usable) for name, alias in aliases}
        return table.declaration.choose(usable, self.latest) | {place for place in places if place is not None}

    def is_usable(self, table: VersionTable, version: int, folder: Path) -> bool:
        """Whether a version answers or could."""
        if folder in self.rejections and self.rejections[folder] == take_signature(folder):
            return False
        return table.answers(version) or self.arrivals is None or self.arrivals.has_arrived(folder)

    def is_arriving(self, folder: Path) -> bool:
        """Whether files of a version may still come, so that what is wrong with them is not worth a word."""
        return self.arrivals is not None and self.arrivals.is_changing(folder)

    def forget_gone(self, name: str, folders: Folders) -> None:
        """Forget what is known of versions whose folders are gone."""
        home, present = self.repository / name, set(folders.values())
        for folder in [folder for folder in self.rejections if folder.parent == home and folder not in present]:
            del self.rejections[folder]
        if self.arrivals is not None:
            self.arrivals.forget_gone(home, present)
