"""What a shard raises goes to who asks, or to another replica; Ray itself is a stand-in here."""

from __future__ import annotations

import sys
import types

import pytest
from shortlist.errors import BadInput
from shortlist.fleet.shards.gathered_head import LostShard
from shortlist.fleet.shards.shard import OtherCut


class RayError(Exception):
    """Ray's own."""


class RayTaskError(RayError):
    """What Ray raises for an error of a replica."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Handle:
    """A deployment whose replicas answer, or raise, one after the other; the last one goes on."""

    def __init__(self, *replies):
        self.replies, self.asked, self.answer = list(replies), 0, self

    def remote(self, message):
        reply = self.replies[min(self.asked, len(self.replies) - 1)]
        self.asked += 1
        return types.SimpleNamespace(result=lambda timeout_s: self.give(reply))

    def give(self, reply):
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def ask(monkeypatch):
    """Asks shards with these handles."""
    errors = {
        "ray": {},
        "ray.exceptions": {"RayError": RayError, "RayTaskError": RayTaskError},
        "ray.serve": {},
        "ray.serve.exceptions": {"RayServeException": type("RayServeException", (Exception,), {})},
    }
    for name, values in errors.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "shortlist.fleet.ray.shard_calls", raising=False)
    from shortlist.fleet.ray.shard_calls import ShardCalls

    yield lambda *handles: ShardCalls("lm", handles, 0.2)(b"question")
    sys.modules.pop("shortlist.fleet.ray.shard_calls", None)


def test_a_replica_that_died_or_is_of_another_version_leaves_the_question_to_another(ask):
    died, other = Handle(RayError("died"), b"one"), Handle(RayTaskError(OtherCut("of another version")), b"two")
    assert ask(died, other) == [b"one", b"two"]


def test_a_shard_of_another_version_alone_is_lost_and_says_why(ask):
    answers = ask(Handle(b"one"), Handle(RayTaskError(OtherCut("it is of another version"))))
    assert answers[0] == b"one"
    assert isinstance(answers[1], LostShard)
    assert "shard 2 of 2 of 'lm' did not answer within 0.2 s (it is of another version)" in str(answers[1])


def test_what_every_replica_would_refuse_is_raised(ask):
    handle = Handle(RayTaskError(BadInput("contexts overflow")))
    with pytest.raises(BadInput, match="overflow"):
        ask(handle)
    assert handle.asked == 1
