"""The open connections of a server: how many there may be, of each client, and what they hold in memory."""

from __future__ import annotations

import logging
import resource
import time
from collections import Counter
from collections.abc import Callable

from shortlist.errors import BadInput, Overloaded, ShortlistError
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.shares import Shares
from shortlist.server.settings import FEWEST_CONNECTIONS

POLLED_AT_ONCE = 1024  # sockets, by libuv
RESERVED_FILES = 64  # of the process that are no connections
LOG_SECONDS = 10.0  # between lines on refusals, however many there are
log = logging.getLogger(__name__)


class TooManyConnections(Overloaded):
    """More connections are open than the server, or this client, may have."""

    status = 503


def limit_connections(wanted: int) -> int:
    """How many connections there may be: as many as wanted, or as the process may have open files.

    Raises BadInput where that is too few for anybody to be answered.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + RESERVED_FILES:
        soft = min(hard, wanted + RESERVED_FILES) if hard != resource.RLIM_INFINITY else wanted + RESERVED_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < FEWEST_CONNECTIONS + RESERVED_FILES:
        raise BadInput(
            f"this process may have {soft} files open, {FEWEST_CONNECTIONS + RESERVED_FILES} are the fewest to serve "
            "with: raise the limit, as by `ulimit -n 4096`"
        )
    if soft < wanted + RESERVED_FILES:
        log.warning("%d connections at most: this process may have %d files open", soft - RESERVED_FILES, soft)
    return min(wanted, soft - RESERVED_FILES)


def ignore_refusal() -> None:
    """Do nothing where a connection is refused: the default where nobody counts them."""


class ConnectionLimits:
    """What the connections of a server share."""

    def __init__(
        self,
        limit: int,
        admission: Admission,
        count_refusal: Callable[[], None] = ignore_refusal,
        count_malformed: Callable[[], None] = ignore_refusal,
    ) -> None:
        """limit: of open connections. admission: what connections hold in memory counts there.

        count_refusal: called with each connection that is one too many, count_malformed: with each that is closed since
        what it sent is no request, or has too long a head.
        """
        self.shares, self.admission, self.count_refusal = Shares(limit), admission, count_refusal
        self.count_malformed = count_malformed
        self.refusals: Counter[str] = Counter()  # by sentence, since the last line in the log
        self.log_time = -LOG_SECONDS

    def open(self, client: str) -> None:
        """Count a connection of a client; raises TooManyConnections, and counts nothing, where it has too many."""
        if not self.shares.has_room(client, 1):
            self.count_refusal()
            raise TooManyConnections(
                f"{self.shares.held} connections are open, {self.shares.get(client)} of them yours: "
                "close some, or try again later"
            )
        self.shares.add(client, 1)

    def close(self, client: str) -> None:
        """Count a connection no longer."""
        self.shares.add(client, -1)

    @property
    def is_crowded(self) -> bool:
        """Whether so many connections are open that they could keep the event loop to themselves."""
        return self.shares.held >= POLLED_AT_ONCE

    @property
    def has_work(self) -> bool:
        """Whether requests wait to be computed."""
        return self.admission.rows > 0

    def hold(self, client: str, length: int) -> None:
        """Hold `length` more bytes for a client, or fewer where that is negative."""
        self.admission.add_bytes(length, client)

    def check_room(self, client: str, length: int) -> None:
        """Raise Overloaded where `length` more bytes are too many for a client."""
        shares = self.admission.byte_shares
        if shares.held:
            self.admission.check_share(shares, "bytes", length, client)

    def note_refusal(self, error: ShortlistError, client: str) -> None:
        """Log what was refused, and from where: the first at once, more of them in one line now and then."""
        self.refusals[str(error)] += 1
        if not isinstance(error, Overloaded):
            self.count_malformed()
        now = time.monotonic()
        if now - self.log_time >= LOG_SECONDS:
            count, (sentence, _) = self.refusals.total(), self.refusals.most_common(1)[0]
            log.warning("%d requests or connections refused, the last from %s: %s", count, client, sentence)
            self.refusals.clear()
            self.log_time = now
