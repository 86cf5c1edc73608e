import pytest
from shortlist.errors import BundleError
from shortlist.evaluation import checked_head
from shortlist.evaluation.checked_head import load_and_check, open_bundle


def test_a_head_is_loaded_with_what_its_canary_measured(small_repository):
    head, precision = load_and_check(open_bundle(small_repository / "lm" / "1"), "cpu", 1)
    assert head.manifest.name == "lm"
    assert 0.5 < precision <= 1


def test_a_failure_that_nobody_foresaw_is_one_of_the_bundle(small_repository, monkeypatch):
    bundle = open_bundle(small_repository / "lm" / "1")

    def fail(*_):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(checked_head, "Head", fail)
    with pytest.raises(BundleError, match=r"1 cannot be served \(RuntimeError: no such operator\): export it again"):
        load_and_check(bundle)
