"""One message to every shard, each a deployment with replicas of its own; what a lost one leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException

from shortlist.errors import NotReady, ShortlistError
from shortlist.fleet.shards.gathered_head import LostShard

RETRY_SECONDS = 0.05  # until another replica is asked
LOSSES = (RayError, RayServeException, TimeoutError)


class ShardCalls:
    """Asks the shards of one head. Threads may share it; it may not be called in an event loop.

    A replica that dies is asked no more: the same message goes to another one, until the time is over. So it does where
    a replica is of another version, as some are while all are replaced.
    """

    def __init__(self, name: str, handles: Sequence[Any], seconds: float) -> None:
        """name: of the head. handles: of the shards' deployments. seconds: after which a shard is lost."""
        self.name, self.handles, self.seconds = name, handles, seconds

    def __call__(self, message: bytes) -> list[bytes | LostShard]:
        """What each shard answers, or how it was lost; raises what a shard refused the question by."""
        end = time.monotonic() + self.seconds
        responses = [handle.answer.remote(message) for handle in self.handles]
        return [self.collect(number, response, message, end) for number, response in enumerate(responses)]

    def collect(self, number: int, response: Any, message: bytes, end: float) -> bytes | LostShard:
        """The answer of one shard, of another replica where one dies."""
        while True:
            try:
                answer: bytes = response.result(timeout_s=max(0.0, end - time.monotonic()))
                return answer
            except LOSSES as error:
                raise_refusal(error)
                if isinstance(error, TimeoutError) or time.monotonic() + RETRY_SECONDS > end:
                    return self.make_loss(number, error)
            time.sleep(RETRY_SECONDS)
            response = self.handles[number].answer.remote(message)

    def make_loss(self, number: int, error: Exception) -> LostShard:
        """The error for a shard that does not answer."""
        cause = get_cause(error)
        reason = cause if isinstance(cause, NotReady) else type(error).__name__
        return LostShard(
            f"shard {number + 1} of {len(self.handles)} of '{self.name}' did not answer within {self.seconds:g} s "
            f"({reason}): ask again once Ray has started it anew, or with partial"
        )


def raise_refusal(error: Exception) -> None:
    """Raise what every replica of the shard would, as for contexts that overflow; do nothing for other errors."""
    cause = get_cause(error)
    if isinstance(cause, ShortlistError) and not isinstance(cause, NotReady):
        raise cause from None


def get_cause(error: Exception) -> BaseException | None:
    """What the replica itself raised; None where it raised nothing."""
    return error.cause if isinstance(error, RayTaskError) else None
