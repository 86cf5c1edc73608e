"""Beam steps over a dense head, against plain steps in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist import Client
from shortlist.core.row_lists import RowLists
from shortlist.decoding.arguments import make_beam_query
from shortlist.decoding.step import beam_step
from shortlist.errors import BadInput

from tests.support.beams import assert_step, step_plainly
from tests.support.layers import CLASSES, DIM, logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

DENSE = make_dense()
GROUPS, BEAM = 4, 3
SCALE = np.float32(0.2)  # of contexts: logits of language models, which float32 holds to a millionth
ROWS = make_contexts(GROUPS * BEAM, seed=8).contexts * SCALE
SCORES = -np.random.default_rng(2).gamma(2, size=GROUPS * BEAM)
NOTHING = np.zeros(GROUPS * BEAM, bool)
LISTS = [[3 * row + i for i in range(row + 1)] for row in range(GROUPS * BEAM)]
EOS = [2, 9]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("full"), DENSE, method="full", options={})


CASES = {
    "plain": {},
    "more": {"n": 40},
    "fewer": {"n": 1},
    "two ends": {"eos": EOS},
    "allow for all": {"allow": list(range(0, 300, 7))},
    "allow by row": {"allow": LISTS},
    "ban by row": {"ban": LISTS},
    "bias for all": {"bias": {5: 9.0, 17: 4.5, 200: -3.0}},
    "bias by row": {"bias": [{row: 6.0, row + 50: 1.0} if row % 2 else {} for row in range(GROUPS * BEAM)]},
    "bias of legal classes": {"bias": {5: 9.0, 17: 4.5}, "allow": [1, 2, 3, 17], "ban": [2]},
    "forced": {"forced": [row if row % 4 == 0 else -1 for row in range(GROUPS * BEAM)]},
    "forced in spite of all": {
        "forced": [7 if row % 2 else -1 for row in range(GROUPS * BEAM)],
        "ban": [7],
        "bias": {7: 3.0, 8: 2.0},
        "allow": [1, 2, 8],
    },
    "too short": {"eos": EOS, "min_length": 3, "lengths": 2, "bias": {2: 20.0}},
    "some too short": {"eos": EOS, "min_length": 3, "lengths": [*range(GROUPS * BEAM)], "bias": {2: 20.0, 9: 20.0}},
    "temperature": {"temperature": 0.5, "bias": {3: 2.0}},
    "temperature by row": {"temperature": np.linspace(0.2, 3, GROUPS * BEAM).tolist()},
    "exact": {"exact": True, "bias": {3: 2.0}},
}


@pytest.mark.parametrize("name", CASES)
def test_steps_equal_plain_ones(full, name):
    options = CASES[name]
    result = beam_step(full, ROWS, SCORES, beam=BEAM, **options)
    n = options.get("n", max(2, 1 + len(options.get("eos", []))) * BEAM)
    assert result.ids.shape == (GROUPS, n)
    assert_step(result, step_plainly(logprobs_of(DENSE, ROWS), SCORES, NOTHING, BEAM, n, options))


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(1, 30), st.integers(0, 2**32 - 1), st.booleans(), st.booleans()
)
def test_any_shape(full, groups, beam, n, seed, biased, listed):
    random = np.random.default_rng(seed)
    rows = make_contexts(groups * beam, seed=seed % 1000).contexts * SCALE
    scores = np.where(random.random(groups * beam) < 0.2, -np.inf, -random.gamma(2, size=groups * beam))
    finished = random.random(groups * beam) < 0.3
    options = {}
    if biased:
        options["bias"] = [
            {int(id): float(random.normal(0, 5)) for id in random.choice(CLASSES, 4, replace=False)} for _ in rows
        ]
    if listed:
        options["allow"] = [random.choice(CLASSES, int(random.integers(0, 8)), replace=False).tolist() for _ in rows]
    result = beam_step(full, rows, scores, finished, beam=beam, n=n, **options)
    assert_step(result, step_plainly(logprobs_of(DENSE, rows), scores, finished, beam, n, options))


def test_tables_of_lists_equal_lists(full):
    table = RowLists.from_lists(LISTS)
    expected = beam_step(full, ROWS, SCORES, beam=BEAM, allow=LISTS)
    result = beam_step(full, ROWS, SCORES, beam=BEAM, allow=table)
    np.testing.assert_array_equal(result.ids, expected.ids)
    none = beam_step(full, ROWS, SCORES, beam=BEAM, allow=table.for_rows([-1] * len(ROWS)))
    np.testing.assert_array_equal(none.ids, beam_step(full, ROWS, SCORES, beam=BEAM).ids)


def test_a_group_alone_equals_the_group_beside_others(full):
    finished = NOTHING.copy()
    finished[4] = True
    together = beam_step(full, ROWS, SCORES, finished, beam=BEAM, ban=LISTS)
    for group in range(GROUPS):
        part = slice(group * BEAM, (group + 1) * BEAM)
        alone = beam_step(full, ROWS[part], SCORES[part], finished[part], beam=BEAM, ban=LISTS[part])
        np.testing.assert_array_equal(alone.ids[0], together.ids[group])
        np.testing.assert_array_equal(alone.parents[0], together.parents[group])
        np.testing.assert_allclose(alone.scores[0], together.scores[group], atol=1e-6)


def test_finished_beams_pass_once_and_unchanged(full):
    result = beam_step(full, ROWS, SCORES, ~NOTHING, beam=BEAM)
    for group in range(GROUPS):
        order = np.argsort(-SCORES[group * BEAM : (group + 1) * BEAM], kind="stable")
        assert result.parents[group].tolist() == [*order, -1, -1, -1]
        assert result.scores[group, :BEAM].tolist() == SCORES[group * BEAM + order].tolist()
        assert result.logprobs[group].tolist() == [0, 0, 0, -np.inf, -np.inf, -np.inf]
    assert (result.ids == -1).all()


def test_ties_go_by_parent_then_by_id(full):
    rows = np.repeat(ROWS[:1], BEAM, axis=0)
    result = beam_step(full, rows, np.zeros(BEAM), beam=BEAM, n=9)
    assert result.parents[0].tolist() == [0, 1, 2] * 3
    best = full.topk(rows[:1], 3).ids[0]
    assert result.ids[0].tolist() == np.repeat(best, 3).tolist()
    level = {int(id): float(weight) for id, weight in zip(range(6), -full.logprobs(rows[:1], range(6))[0], strict=True)}
    result = beam_step(full, rows, np.zeros(BEAM), beam=BEAM, n=18, allow=[*range(6)], bias=level)
    assert np.allclose(result.scores, 0, atol=1e-6)


def test_scores_accumulate_in_float64(full):
    scores = np.full(BEAM, -1e8)
    result = beam_step(full, ROWS[:BEAM], scores, beam=BEAM)
    best = np.sort(full.topk(ROWS[:BEAM], 6).logprobs.astype(np.float64).ravel())[::-1]
    np.testing.assert_allclose(result.scores[0] + 1e8, best[:6], atol=1e-6)


def test_wide_beams_over_few_classes(full):
    beam = 512
    rows = make_contexts(beam, seed=9).contexts * SCALE
    scores = -np.random.default_rng(1).gamma(2, size=beam)
    result = beam_step(full, rows, scores, beam=beam, eos=[1])
    expected = step_plainly(logprobs_of(DENSE, rows), scores, np.zeros(beam, bool), beam, 2 * beam, {})
    assert_step(result, expected)


def test_nothing_at_all(full):
    result = beam_step(full, np.empty((0, DIM), np.float32), [], [], beam=BEAM)
    assert (result.parents.shape, result.ids.shape, result.normalizer) == ((0, 6), (0, 6), "exact")


def test_a_minimum_length_that_no_row_has(full):
    options = {"eos": EOS, "min_length": 10**30, "lengths": 3, "bias": {2: 30.0}}
    assert not np.isin(beam_step(full, ROWS, SCORES, beam=BEAM, **options).ids, EOS).any()


def test_scores_that_overflow_name_their_row(full):
    rows = ROWS.copy()
    rows[5] = 3e38
    scores = np.where(np.arange(len(ROWS)) == 2, -np.inf, SCORES)  # a row that is not searched counts all the same
    with pytest.raises(BadInput, match="contexts row 5 is so large that its scores overflow float32"):
        beam_step(full, rows, scores, beam=BEAM)


WRONG = {
    "rows of no whole group": ((ROWS[:4], SCORES[:4]), {}, "contexts have 4 rows, no whole number of groups of 3"),
    "too few scores": ((ROWS, SCORES[:5]), {}, "scores has 5 entries for 12 contexts: give one a row"),
    "nested scores": ((ROWS, SCORES[None]), {}, r"scores has shape \[1, 12\]: give one number a row"),
    "no number of a score": ((ROWS, np.where(NOTHING | (SCORES < -1), np.nan, 0)), {}, r"scores row \d+ is nan"),
    "an infinite score": ((ROWS, np.full(12, np.inf)), {}, "scores row 0 is inf"),
    "text for scores": ((ROWS, ["a"] * 12), {}, "scores must be a flat list of numbers"),
    "too few flags": ((ROWS, SCORES, [True]), {}, "finished has 1 entries for 12 contexts"),
    "flags of numbers": ((ROWS, SCORES, [0] * 12), {}, "finished must be a flat list of true and false"),
    "no beam": ((ROWS, SCORES), {"beam": 0}, "beam is 0: give 1 or more"),
    "half a beam": ((ROWS, SCORES), {"beam": 1.5}, "beam is 1.5: give a whole number"),
    "n of far too many": ((ROWS[:0], SCORES[:0]), {"n": 10**30}, "n is over 2147483648: give fewer"),
    "a beam of far too many": ((ROWS[:0], SCORES[:0]), {"beam": 10**30}, "beam is over 2147483648: give fewer"),
    "a misspelt beam": ((ROWS, SCORES), {"beem": 3}, "beam_step has no option 'beem': known are beam, n, eos, allow,"),
    "n of 0": ((ROWS, SCORES), {"n": 0}, "n is 0: give 1 or more"),
    "an end that is no class": ((ROWS, SCORES), {"eos": [300]}, "eos holds id 300 but classes go from 0 to 299"),
    "a forced id that is none": ((ROWS, SCORES), {"forced": [300] * 12}, "forced holds id 300"),
    "too few forced ids": ((ROWS, SCORES), {"forced": [1]}, "forced has 1 entries for 12 contexts"),
    "too few lists": ((ROWS, SCORES), {"allow": [[1], [2]]}, "allow has 2 rows for 12 contexts"),
    "a list of what is no class": ((ROWS, SCORES), {"ban": [300]}, "ban holds id 300"),
    "no lengths": ((ROWS, SCORES), {"min_length": 2}, "min_length is 2 but lengths are missing"),
    "too few lengths": ((ROWS, SCORES), {"min_length": 2, "lengths": [1, 2]}, "lengths has 2 entries"),
    "a temperature of 0": ((ROWS, SCORES), {"temperature": 0.0}, "temperature is 0.0: give numbers from 0.01 to 100"),
    "a temperature near 0": ((ROWS, SCORES), {"temperature": 1e-320}, "temperature is 1e-320: give numbers from 0.01"),
    "a row's temperature": (
        (ROWS, SCORES),
        {"temperature": [1.0] * (len(SCORES) - 1) + [100.5]},
        "temperature is 100.5: give numbers from 0.01 to 100",
    ),
    "no number of a temperature": ((ROWS, SCORES), {"temperature": np.nan}, "temperature is nan"),
    "text for a temperature": ((ROWS, SCORES), {"temperature": "x"}, "temperature is 'x': give one number"),
    "too few temperatures": ((ROWS, SCORES), {"temperature": [1.0]}, "temperature has 1 entries"),
    "a bias of what is no class": ((ROWS, SCORES), {"bias": {300: 1.0}}, "bias holds id 300"),
    "a bias twice": ((ROWS, SCORES), {"bias": ([[1, 1]], [[1.0, 2.0]])}, "bias row 0 holds id 1 twice"),
    "an infinite bias": ((ROWS, SCORES), {"bias": {3: -np.inf}}, "bias of id 3 is not finite"),
    "contexts that are not finite": ((ROWS * np.nan, SCORES), {}, "contexts row 0 holds NaN"),
    "contexts too wide": ((np.zeros((3, 5)), SCORES[:3]), {}, r"contexts have shape \[3, 5\] but lm takes"),
}


def test_the_least_temperature_may_be_float32():
    least = np.full(len(SCORES), 0.01, np.float32)
    assert make_beam_query(ROWS, SCORES, beam=BEAM, temperature=least).temperature[0] == np.float32(0.01)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(full, name):
    arguments, options, sentence = WRONG[name]
    with pytest.raises(BadInput, match=sentence):
        beam_step(full, *arguments, **{"beam": BEAM} | options)


def test_a_step_without_a_beam_is_refused(full):
    with pytest.raises(BadInput, match="beam is missing: give the number of rows in each group"):
        beam_step(full, ROWS, SCORES)
    with Client("http://127.0.0.1:1") as client, pytest.raises(BadInput, match="beam is missing"):
        client.beam_step("lm", ROWS, SCORES)
