"""What was changed by request or rolled back while the server ran: what a process that begins later is told."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Any

from shortlist.server.messages.headers import AUTHORIZATION, CONTENT_LENGTH

from .exchange import Request, Response

VERBS_START = "/v2/"  # of paths whose ends say what is done; lists may be called anything
SETTINGS_ENDINGS = ("/logging", "/setting")  # paths whose answer is every setting
LOAD_ENDING = "/load"
UNDOING_ENDINGS = (LOAD_ENDING, "/unregister")  # what was changed is again as at the start
LISTS_PATH = "/v1/lists"
MODELS_PATH = "/v2/repository/models"
COMPRESSION_LEVEL = 1  # of zlib: 16 MiB of ids take a quarter of a second, in a thread
VERBS = (LOAD_ENDING, "/unload", "/register", "/unregister")  # ends of paths that name what they change before


class Journal:
    """The last change of everything that was changed: requests that a new process is to be sent, in their order.

    Their bodies are kept compressed, so that they take less than what the processes keep of them, and no API keys are.
    """

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}  # by what they change; bodies are compressed
        self.roll_backs: dict[tuple[str, int], list[Any]] = {}  # as they were told, by model and version

    def note(self, request: Request, response: Response) -> None:
        """Note a change that was done.

        Settings are changed one by one, but an answer holds all of them, so that it stands for all changes before it.
        """
        subject = name_subject(request.path)
        self.forget_roll_backs(subject)
        for other in [other for other in self.requests if other == subject or other.startswith(f"{subject}/")]:
            del self.requests[other]
        if has_ending(request.path, SETTINGS_ENDINGS):
            headers = [header for header in request.headers if header[0] != CONTENT_LENGTH]
            self.requests[subject] = pack(request._replace(body=response.body, headers=headers))
        elif request.method != "DELETE" and not has_ending(request.path, UNDOING_ENDINGS):
            self.requests[subject] = pack(request)

    def note_roll_back(self, fields: list[Any]) -> None:
        """Note a version that was rolled back; fields: its model's name and its number come first."""
        self.roll_backs[fields[0], fields[1]] = fields

    def forget_roll_backs(self, subject: str) -> None:
        """Forget those of a model that is loaded by request: its versions are served, whatever became of them."""
        gone = [place for place in list(self.roll_backs) if f"{MODELS_PATH}/{place[0]}" == subject]
        for place in gone:
            del self.roll_backs[place]

    def keep_lists(self, names: Collection[str]) -> None:
        """Forget all lists but those of these names: the processes have forgotten them, too."""
        paths = {f"{LISTS_PATH}/{name}" for name in names}
        gone = [path for path in self.requests if path.startswith(f"{LISTS_PATH}/") and path not in paths]
        for path in gone:
            del self.requests[path]

    @property
    def has_lists(self) -> bool:
        """Whether lists are among what a new process is to be sent."""
        return any(path.startswith(f"{LISTS_PATH}/") for path in self.requests)

    def list_requests(self) -> list[Request]:
        """What a new process is to be sent."""
        return [request._replace(body=zlib.decompress(request.body)) for request in self.requests.values()]


def pack(request: Request) -> Request:
    """The same request as it is kept: its body compressed, blanks and repetitions of which cost next to nothing."""
    headers = [header for header in request.headers if header[0] != AUTHORIZATION]
    return request._replace(body=zlib.compress(request.body, COMPRESSION_LEVEL), headers=headers)


def name_subject(path: str) -> str:
    """What the request of a path changes: a model, a list, a region, or all regions."""
    return path.rpartition("/")[0] if has_ending(path, VERBS) else path


def has_ending(path: str, endings: tuple[str, ...]) -> bool:
    """Whether the end of a path says one of these things."""
    return path.startswith(VERBS_START) and path.endswith(endings)
