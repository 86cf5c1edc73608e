"""A canary now and then: whether the files and the answers of the served bundles are still those of their load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from copy import copy

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import PlanSettings
from shortlist.errors import BundleError
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head
from shortlist.server.lifecycle.registry import Models
from shortlist.server.models import Model

log = logging.getLogger(__name__)

Place = tuple[str, int]  # a model's name and version


class BundleWatch:
    """Looks at every served bundle once in so many seconds, one after the other, in a thread.

    publish: called with a model and whether its bundle is as it was. What to do about one that is not is left to
    whoever is on call: its files may be those of the next version, copied over it by mistake.
    """

    def __init__(self, models: Models, seconds: float, publish: Callable[[Model, bool], None]) -> None:
        self.models, self.seconds, self.publish = models, seconds, publish
        self.faulty: set[Place] = set()  # which a line in the log has told of

    async def run(self) -> None:
        """Watch in an endless loop."""
        while True:
            await asyncio.sleep(self.seconds)
            await self.check_all()

    async def check_all(self) -> None:
        """Look at every model; none of them is held on to between two looks, for it may be dropped."""
        models = list(self.models)
        self.faulty.intersection_update(map(locate, models))
        for model in models:
            try:
                self.note(model, await asyncio.to_thread(self.is_sound, model))
            except Exception:  # not foreseen, as of too little memory; the next look may do better
                log.exception("%s could not be looked at", model)

    def is_sound(self, model: Model) -> bool | None:
        """Whether a model's files and answers are as they were; None where it is not served, or was loaded again."""
        head, bundle = model.head_in_use, model.bundle
        if head is None or bundle is None:
            return None
        fault = find_fault(head, bundle)
        if model.bundle is not bundle:
            return None
        if self.models.holds(model):
            self.tell(model, fault)
        return fault is None

    def tell(self, model: Model, fault: str | None) -> None:
        """Log that a model has a fault, or none any more, once for each change from one to the other."""
        place = locate(model)
        if fault is not None and place not in self.faulty:
            self.faulty.add(place)
            log.error("%s is served, but %s", model, fault)
        elif fault is None and place in self.faulty:
            self.faulty.remove(place)
            log.warning("%s is as it was loaded again: its files and its canary are right", model)

    def note(self, model: Model, sound: bool | None) -> None:
        """Publish what was found, unless the model was dropped meanwhile."""
        if sound is not None and self.models.holds(model):
            self.publish(model, sound)


def locate(model: Model) -> Place:
    """What a version is known by, without holding on to it."""
    return model.name, model.version


def find_fault(head: Head, bundle: Bundle) -> str | None:
    """What is no longer as it was at the load, or None.

    The files come first: reading a mapped file that was cut short ends the process.
    """
    changed = bundle.find_change()
    if changed is not None:
        return f"{bundle.folder / changed} was changed or removed since: put a new version beside it instead"
    try:
        check_canary(copy_uncounted(head, bundle.manifest.settings), bundle)
    except BundleError as error:
        return str(error)
    return None


def copy_uncounted(head: Head, settings: PlanSettings | None = None) -> Head:
    """The same head as it was exported, whose searches are not counted as requests'.

    settings: by which it searches, if not by its own.
    """
    other = copy(head.base)
    other.plan = head.plan.with_settings(settings or head.plan.settings)
    return other
