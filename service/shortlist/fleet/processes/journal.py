"""What was changed by request while the server ran, as a process that begins later has to be told it."""

from __future__ import annotations

from shortlist.server.messages.headers import CONTENT_LENGTH

from .exchange import Request, Response

SETTINGS_ENDINGS = ("/logging", "/setting")  # paths whose answer is every setting
UNDOING_ENDINGS = ("/load", "/unregister")  # what was changed is again as at the start
VERBS = ("/load", "/unload", "/register", "/unregister")  # ends of paths that name what they change before


class Journal:
    """The last change of everything that was changed: requests that a new process is to be sent, in their order."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}  # by what they change

    def note(self, request: Request, response: Response) -> None:
        """Note a change that was done.

        Settings are changed one by one, but an answer holds all of them, so that it stands for all changes before it.
        """
        subject = name_subject(request.path)
        for other in [other for other in self.requests if other == subject or other.startswith(f"{subject}/")]:
            del self.requests[other]
        if request.path.endswith(SETTINGS_ENDINGS):
            headers = [header for header in request.headers if header[0] != CONTENT_LENGTH]
            self.requests[subject] = request._replace(body=response.body, headers=headers)
        elif request.method != "DELETE" and not request.path.endswith(UNDOING_ENDINGS):
            self.requests[subject] = request

    def list_requests(self) -> list[Request]:
        """What a new process is to be sent."""
        return list(self.requests.values())


def name_subject(path: str) -> str:
    """What the request of a path changes: a model, a list, a region, or all regions."""
    return next((path.removesuffix(verb) for verb in VERBS if path.endswith(verb)), path)
