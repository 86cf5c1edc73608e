"""What is told of every request that is over: lines of the access log, OpenTelemetry spans; neither by default."""

from __future__ import annotations

import time
from collections.abc import Callable

from shortlist.core.extras import require
from shortlist.server.settings import Settings

from .access_log import log_request
from .request import RequestState

Report = Callable[[RequestState, int, float], None]  # told of a request, its status and when it was over


class Reports:
    """All that is told, as the settings want it. are_wanted: whether anything is."""

    def __init__(self, settings: Settings) -> None:
        """Raises MissingExtra where spans are wanted and their extra is not installed."""
        self.spans = require("shortlist.server.engine.spans").RequestSpans() if settings.otel else None
        self.reports: list[Report] = [log_request] if settings.access_log else []
        if self.spans is not None:
            self.reports.append(self.spans.report)
        self.are_wanted = bool(self.reports)

    def tell(self, state: RequestState, status: int) -> None:
        """Tell of a request that is over now."""
        end = time.perf_counter()
        for report in self.reports:
            report(state, status, end)

    def stop(self) -> None:
        """Tell what is still to be sent."""
        if self.spans is not None:
            self.spans.stop()
