"""Settings of each plan: what a manifest may say, and what may be changed on an open head."""

import numpy as np
import pytest
from pydantic import ValidationError
from shortlist.bundle.settings import (
    EFFORT_WEIGHTS,
    LOOKS,
    SETTINGS,
    AdaptiveSettings,
    CascadeSettings,
    FullSettings,
    GroupedSettings,
    PreviewSettings,
    ScreenSettings,
)
from shortlist.errors import BadInput

GROUPED = GroupedSettings(opened=400, previewed=100, candidates=50, full_view=7, tail_limit=-1.5)
LOOK = (0.1,) * EFFORT_WEIGHTS
PROMISED = GROUPED.model_copy(update={"promise": 0.9, "effort": (LOOK,) * LOOKS, "list_effort": LOOK})
CASCADE = CascadeSettings(candidates=60, full_view=24, margin=0.0, common=100, stride=4, tail_limit=0.0)
SCREEN = ScreenSettings(probes=2, probe_margin=0.1, dense_margin=0.0, second_stage=False, full_view=0)


def test_changes_give_other_settings():
    changed = GROUPED.with_changes({"previewed": 300, "candidates": 60})
    assert changed == GroupedSettings(opened=400, previewed=300, candidates=60, full_view=7, tail_limit=-1.5)
    assert (GROUPED.classes_opened, GROUPED.classes_previewed, changed.classes_previewed) == (400, 200, 300)
    assert GROUPED.with_changes({}) == GROUPED


@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        (GROUPED, {"preview": 3}, "there is no setting 'preview' to change: choose from opened, previewed, candidates"),
        (GROUPED, {"tail_limit": 1.0}, "there is no setting 'tail_limit' to change"),
        (SCREEN, {"second_stage": True}, "no setting 'second_stage' to change: choose from probes, probe_margin"),
        (FullSettings(), {"full_view": 3}, "there is no setting 'full_view' to change: this head has none"),
        (GROUPED, {"previewed": 0}, "setting previewed=0 is wrong: Input should be greater than or equal to 1"),
        (GROUPED, {"candidates": 1.5}, r"setting candidates=1\.5 is wrong: Input should be a valid integer"),
        (GROUPED, {"opened": "many"}, "setting opened=many is wrong"),
        (SCREEN, {"probe_margin": -0.1}, r"setting probe_margin=-0\.1 is wrong"),
        (SCREEN, {"dense_margin": float("inf")}, "setting dense_margin=inf is wrong: Input should be a finite number"),
        (AdaptiveSettings(), {"previews": 7}, "setting previews=7 is wrong"),
        (AdaptiveSettings(), {"previews": 1}, "setting previews=1 is wrong: Input should be a valid boolean"),
        (GROUPED, {"previewed": True}, "setting previewed=True is wrong: Input should be a valid integer"),
        (GROUPED, {"previewed": np.True_}, "setting previewed=True is wrong: Input should be a valid integer"),
        (GROUPED, {"previewed": "8192"}, "setting previewed=8192 is wrong: Input should be a valid integer"),
        (GROUPED, {"previewed": 8192.0}, r"setting previewed=8192\.0 is wrong: Input should be a valid integer"),
        (SCREEN, {"probe_margin": "0.1"}, r"setting probe_margin=0\.1 is wrong: Input should be a valid number"),
        (GROUPED, {"previewed": 49}, "setting previewed=49 is under candidates=50: preview more classes"),
        (GROUPED, {"candidates": 6}, "setting candidates=6 is under full_view=7: choose more candidates"),
        (GROUPED, {"opened": 1, "previewed": 1}, "setting previewed=1 is under candidates=50: preview more classes"),
        (CASCADE, {"full_view": 61}, "setting candidates=60 is under full_view=61: choose more candidates"),
    ],
)
def test_wrong_changes(settings, changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        settings.with_changes(changes)


@pytest.mark.parametrize("changes", [{"opened": 399}, {"candidates": 49}, {"full_view": 6, "promise": 0.8}])
def test_searches_that_are_narrower_than_their_efforts_state_no_promise(changes):
    narrow = PROMISED.with_changes(changes)
    assert (narrow.promise, narrow.effort) == (changes.get("promise", 0.9), PROMISED.effort)
    assert (narrow.is_narrower, narrow.stated_promise) == (True, None)
    again = narrow.with_changes({"opened": 400, "candidates": 50, "full_view": 7})
    assert again.stated_promise is None, "what is wide enough is not known any more"


def test_searches_that_are_wider_than_their_efforts_state_their_promise():
    wide = PROMISED.with_changes({"candidates": 90, "opened": 900, "previewed": 90, "promise": 0.95})
    assert (wide.is_narrower, wide.stated_promise) == (False, 0.95)
    with pytest.raises(BadInput, match="there is no setting 'is_narrower' to change"):
        PROMISED.with_changes({"is_narrower": True})


def test_numbers_of_numpy_are_numbers():
    changed = GROUPED.with_changes({"previewed": np.int64(300), "candidates": np.uint8(60)})
    assert (changed.previewed, type(changed.previewed), changed.candidates) == (300, int, 60)
    assert SCREEN.with_changes({"probe_margin": np.float32(0.5), "dense_margin": 1}).probe_margin == 0.5
    assert not AdaptiveSettings().with_changes({"previews": np.False_}).previews


def test_settings_never_change():
    with pytest.raises(ValidationError, match="frozen"):
        GROUPED.previewed = 3


@pytest.mark.parametrize("kind", SETTINGS.values())
def test_what_may_be_changed_is_a_setting_that_says_what_it_is(kind):
    assert set(kind.adjustable) <= kind.model_fields.keys()
    assert all(field.description for field in kind.model_fields.values())


def test_a_shift_may_have_either_sign():
    assert PreviewSettings(full_view=1, tail_shift=-3.0).tail_shift == -3.0
