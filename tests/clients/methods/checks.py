"""What the checks of all foreign clients share; of the programs beside it, which run in the clients' environments."""

from __future__ import annotations

import traceback

import numpy as np

CHECKS = []
OUTPUTS = ("ids", "logprobs", "scored")


def check(function):
    """Put a coroutine function among those that `run_checks` runs."""
    CHECKS.append(function)
    return function


def assert_same(read, case, answer, names=OUTPUTS):
    """Whether outputs are an answer of the case. read: an output's name -> its array."""
    for name in names:
        expected, values = case[f"{answer}_{name}"], read(name)
        assert values.shape == expected.shape, f"{name}: {values.shape} for {expected.shape}"
        assert values.dtype == expected.dtype, f"{name}: {values.dtype}"
        if name == "logprobs":
            np.testing.assert_allclose(np.maximum(values, -3e38), np.maximum(expected, -3e38), atol=1e-5)
        else:
            np.testing.assert_array_equal(values, expected)


async def catch(awaitable, kind, status):
    """The error of this kind that a call raises."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"was answered, and should have been refused with {status}")


async def run_checks(*arguments, last=()):
    """Every check, and those in `last`, with the arguments: its name -> "ok" or what went wrong."""
    report = {}
    for each in [*CHECKS, *last]:
        try:
            await each(*arguments)
            report[each.__name__] = "ok"
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[1:2]
            where = f"line {line[0].lineno}" if line else "?"
            report[each.__name__] = f"{where}: {type(error).__name__}: {error}"[:600]
    return report
