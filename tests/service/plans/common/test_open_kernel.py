"""Loops that cannot be imported: a missing numba is no error, anything else is."""

import logging

import pytest
from shortlist.plans.common.open_kernel import log_missing_numba, open_kernel


def import_jit():
    from shortlist.kernels.primitives import jit

    return jit


def test_a_missing_numba_is_logged_once(no_numba, caplog):
    log_missing_numba.cache_clear()
    with caplog.at_level(logging.INFO, "shortlist"):
        assert open_kernel(import_jit) is None
        assert open_kernel(import_jit) is None
    assert len(caplog.messages) == 1
    assert "compiled loops are off, graphs answer in their place: import of numba halted" in caplog.text


@pytest.mark.parametrize("error", [ImportError("cannot import name 'x'"), ModuleNotFoundError("no y", name="y")])
def test_another_error_of_an_import_is_raised(error):
    def fail():
        raise error

    with pytest.raises(ImportError, match=str(error)):
        open_kernel(fail)


def test_a_numba_that_refuses_this_numpy_is_missing():
    frame = {"__name__": "numba"}
    exec("def refuse(): raise ImportError('Numba needs NumPy 2.2 or less')", frame)
    assert open_kernel(frame["refuse"]) is None
