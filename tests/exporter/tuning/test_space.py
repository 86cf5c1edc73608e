"""What is tried of each method is what the method takes."""

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Dense
from shortlist_exporter.methods.grouped import count_opened
from shortlist_exporter.methods.l2s import change_probes
from shortlist_exporter.methods.registry import METHODS
from shortlist_exporter.methods.svd import change_full_view
from shortlist_exporter.tuning.space import (
    SPACES,
    choose_methods,
    list_builds,
    list_cascade_builds,
    list_grouped_builds,
    list_l2s_builds,
    list_settings,
    list_svd_builds,
)

from tests.exporter.tuning.conftest import dense
from tests.support.layers import make_contexts, make_dense

pytestmark = pytest.mark.slow


def test_a_setting_equals_a_fit_with_it():
    small, rows = make_dense(), make_contexts(600).contexts
    options = {"basis": "context", "width": "6", "full_view": "30"}
    fit = change_full_view(METHODS["svd"].fit(small, rows, options, 0), small, rows, {"full_view": 50}, 0)
    direct = METHODS["svd"].fit(small, rows, options | {"full_view": "50"}, 0)
    assert (fit.settings, fit.fit, fit.cost) == (direct.settings, direct.fit, direct.cost)
    options = {"clusters": "6", "budget": "40", "rounds": "1", "epochs": "1", "second_probe": "0.2"}
    fit = change_probes(METHODS["l2s"].fit(small, rows, options, 0), small, rows, {"probes": 2}, 0)
    direct = METHODS["l2s"].fit(small, rows, options | {"probes": "2"}, 0)
    assert (fit.settings, fit.fit, fit.cost) == (direct.settings, direct.fit, direct.cost)
    np.testing.assert_array_equal(fit.module.tail.numpy(), direct.module.tail.numpy())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("svd", list_svd_builds),
        ("l2s", list_l2s_builds),
        ("cascade", list_cascade_builds),
        ("grouped", list_grouped_builds),
    ],
)
def test_every_build_is_one_that_the_method_takes(method, options):
    small = make_dense()
    for build in options(small):
        fit = METHODS[method].fit(small, make_contexts().contexts, build | quick(method), 0)
        assert SPACES[method].setting in fit.settings.adjustable
    assert all(list(setting) == [SPACES[method].setting] for setting in list_settings(method, small))


def test_grouped_heads_are_tried_without_a_promise_that_nothing_calibrates():
    assert [METHODS["grouped"].find_promise(options) for options in list_grouped_builds(dense)] == [None] * 3


def test_grouped_heads_may_open_all_that_an_export_does_and_more():
    """A recogniser of 6,625 characters kept P@5 .97 from 3,072 on; 1,536 were the most that were tried."""
    layer = Dense(np.zeros((6625, 1), np.float32))
    opened = [setting["opened"] for setting in list_settings("grouped", layer)]
    assert count_opened(6625) in opened
    assert opened[-1] == 6144


def test_the_cost_of_grouped_is_that_of_what_is_opened():
    fit = METHODS["grouped"].fit(make_dense(3000), make_contexts().contexts, {"opened": "1024"}, 0)
    options = fit.fit | fit.settings.model_dump()
    more = SPACES["grouped"].cost(options | {"opened": 2048}, make_dense(3000))
    assert more.macs > fit.cost.macs
    assert more.bytes > fit.cost.bytes
    assert SPACES["grouped"].cost(options, make_dense(3000)) == fit.cost


def quick(method):
    return {"clusters": "4", "rounds": "0", "background": "0"} if method == "l2s" else {}


def test_methods_that_are_not_listed_take_part_with_their_defaults(monkeypatch):
    monkeypatch.delitem(SPACES, "l2s")
    assert choose_methods([])[-1] == "l2s"
    assert [(build.method, build.options) for build in list_builds(["l2s"], dense)] == [("l2s", ())]
    assert list_settings("l2s", dense) == [{}]


def test_methods_trained_on_targets_are_left_out(monkeypatch):
    monkeypatch.setattr(type(METHODS["l2s"]), "reference", "self")
    assert "l2s" not in choose_methods([])
    with pytest.raises(BadInput, match="targets and cannot be compared with the dense layer: leave it out"):
        choose_methods(["l2s"])


def test_only_methods_that_are_searched_are_offered_for_an_unknown_one():
    with pytest.raises(BadInput, match="there is no method 'svm': choose one of ") as refusal:
        choose_methods(["svd", "svm"])
    offered = str(refusal.value).split("choose one of ")[1].split(", ")
    assert choose_methods(offered) == offered == choose_methods([])


def test_dense_alone_leaves_nothing_to_compare_it_with():
    assert choose_methods(["full", "svd"]) == ["svd"]
    with pytest.raises(BadInput, match="method full is the dense layer, beside which others are measured"):
        choose_methods(["full"])
