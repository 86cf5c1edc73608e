"""Sentences show a text in quotes: without them "version is 1: send a whole number" would contradict itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from shortlist.core.draws.sampling import parse_sampling
from shortlist.errors import BadInput
from shortlist.server.codecs.v1_json import read_limits, read_target
from shortlist.server.codecs.v2_request import read_count
from shortlist.server.engine.log_settings import check_verbose_level
from shortlist.server.messages.json_fields import read_flag

CASES: dict[str, Callable[[], object]] = {
    "exact is 'true'": lambda: read_flag({"exact": "true"}, "exact"),
    "version is '1'": lambda: read_target({"model": "lm", "version": "1"}),
    "timeout is '5'": lambda: read_limits({"timeout": "5"}),
    "priority is '1'": lambda: read_limits({"priority": "1"}),
    "priority is -1": lambda: read_limits({"priority": -1}),
    "timeout is '1000'": lambda: read_count({"timeout": "1000"}, "timeout"),
    "log_verbose_level is '1'": lambda: check_verbose_level("1"),
    "seed is '1'": lambda: parse_sampling(1, seed="1"),
    "temperature is '1'": lambda: parse_sampling(1, seed=1, temperature="1"),
    "top_p is '1'": lambda: parse_sampling(1, seed=1, top_p="1"),
}


@pytest.mark.parametrize("sentence", CASES)
def test_texts_are_shown_in_quotes(sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^{sentence}: "):
        CASES[sentence]()
