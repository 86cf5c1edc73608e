import errno
import re

import pytest
from shortlist.errors import BundleError
from shortlist.evaluation import checked_head
from shortlist.evaluation.checked_head import load_and_check, open_bundle


def test_a_head_is_loaded_with_what_its_canary_measured(small_repository):
    head, precision = load_and_check(open_bundle(small_repository / "lm" / "1"), "cpu", 1)
    assert head.manifest.name == "lm"
    assert 0.5 < precision <= 1


ROOM = "give this process more memory, files or threads, and load it again"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (RuntimeError("no such operator"), "export it again"),
        (RuntimeError("can't start new thread"), ROOM),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), ROOM),
        (OSError(errno.EMFILE, "Too many open files"), ROOM),
        (MemoryError("Unable to allocate 1 GiB"), ROOM),
        (ImportError("onnxruntime.so: failed to map segment from shared object"), ROOM),
    ],
)
def test_a_failure_that_nobody_foresaw_is_one_of_the_bundle_or_of_the_system(
    small_repository, monkeypatch, error, advice
):
    def fail(*_):
        raise error

    bundle = open_bundle(small_repository / "lm" / "1")
    monkeypatch.setattr(checked_head, "Head", fail)
    sentence = rf"1 cannot be served \({type(error).__name__}: .*{re.escape(str(error)[-10:])}\): {advice}"
    with pytest.raises(BundleError, match=sentence):
        load_and_check(bundle)


def test_a_bundle_that_this_user_may_not_open_is_said_without_a_traceback(small_repository, monkeypatch, caplog):
    def refuse(folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(checked_head, "Bundle", refuse)
    with pytest.raises(BundleError, match=r"1 cannot be read \(Permission denied\): give this user access to it"):
        open_bundle(small_repository / "lm" / "1")
    assert caplog.records == []
