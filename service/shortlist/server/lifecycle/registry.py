"""The models that are served, by name: what requests look into while versions come and go."""

from __future__ import annotations

from collections.abc import Iterator

from shortlist.core.checks import cut
from shortlist.errors import BadInput, NotFound, NotReady
from shortlist.server.models import Model

from .version_table import VersionTable

ALIAS_SIGN = "@"  # which no model's name has


class Models:
    """A table of versions for each model.

    Threads may share it: a change puts another table, or another mapping of tables, into the place of the one before,
    so that readers see the old one or the new one, never a mixture.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, VersionTable] = {}

    def __iter__(self) -> Iterator[Model]:
        for table in self.by_name.values():
            yield from table.by_number.values()

    def put(self, table: VersionTable) -> None:
        """Replace the table of one model; one without versions removes the model."""
        others = {name: other for name, other in self.by_name.items() if name != table.name}
        self.by_name = dict(sorted((others | ({table.name: table} if table.by_number else {})).items()))

    def holds(self, model: Model) -> bool:
        """Whether this version is in its model's table; it may have been dropped."""
        table = self.by_name.get(model.name)
        return table is not None and table.by_number.get(model.version) is model

    def find_table(self, name: str) -> VersionTable:
        """The versions of a model, which may be named with an alias; raises NotFound."""
        table = self.by_name.get(name)
        if table is not None:
            return table
        model, _, alias = name.partition(ALIAS_SIGN)
        table = self.by_name.get(model)
        if table is None:
            raise NotFound(f"Request for unknown model: '{cut(name)}' is not found")
        table.check_alias(alias)
        return table

    def find(self, name: str, version: int | None = None, content: bytes | None = None) -> Model:
        """The version of a model that a request asks: by its number, by an alias as in lm@stable, else the default.

        content: of the request, which says to whose share it belongs; None for one that belongs to none.
        Raises NotFound, BadInput.
        """
        table = self.find_table(name)
        if name == table.name:
            return table.find_default(content) if version is None else table.find_version(version)
        if version is not None:
            raise BadInput(f"'{cut(name)}' names an alias beside version {version}: give one of them")
        return table.find_alias(name.partition(ALIAS_SIGN)[2])

    def check_ready(self) -> None:
        """Raise NotReady naming the first model of the start that is loading, or of which no version answers.

        What was added or unloaded by name while the server ran does not count, as long as something answers.
        """
        unready = [model for table in self.by_name.values() for model in list_delaying(table)]
        if unready:
            first = min(unready, key=lambda model: model.state)
            raise NotReady(f"{first} is not ready: {first.reason}")
        if not any(model.head_in_use is not None for model in self):
            raise NotReady("no model answers: load one, or start the server again")


def list_delaying(table: VersionTable) -> list[Model]:
    """The versions that the server waits for: those that load, and failed ones where no other version answers."""
    models = [model for model in table.by_number.values() if model.delays_readiness]
    answers = any(model.state == "ready" for model in table.by_number.values())
    return [model for model in models if model.state == "loading" or (model.state == "failed" and not answers)]


def parse_version(text: str | None, name: str) -> int | None:
    """A version of model `name` from a path or query, None for the latest; raises NotFound when it is no number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFound(f"Request for unknown model: '{cut(name)}' version {cut(text)} is not found")
    return int(text)
