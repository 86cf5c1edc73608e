"""Beam search over a dense head, in process and over HTTP, against a plain search in float64."""

import asyncio

import numpy as np
import pytest
import shortlist
from shortlist.core.row_lists import NamedLists, RowLists
from shortlist.decoding.finish import CTranslate2, HuggingFace, NoneBetter
from shortlist.errors import BadInput, NotFound, Unreachable

from tests.support.layers import RunningServer, logprobs_of, make_contexts, make_dense, make_head
from tests.support.plain_search import START, Decoder, search_plainly

pytestmark = pytest.mark.slow

CLASSES, DIM, SENTENCES = 30, 8, 4
EOS = [1]
BIAS = np.where(np.arange(CLASSES) == 1, 1.0, 0.0).astype(np.float32)
DENSE = make_dense(CLASSES, DIM, seed=3, bias=BIAS)
DECODER = Decoder(CLASSES, DIM)
STATE = DECODER.start(SENTENCES)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    make_head(root, DENSE, make_contexts(400, DIM), method="full", options={})
    return root


@pytest.fixture(scope="module")
def head(repository):
    return shortlist.load(repository / "lm" / "1", threads=1)


@pytest.fixture(scope="module")
def server(repository):
    with RunningServer(repository) as server:
        yield server


PLAIN = {"beam": 4, "n_best": 3, "eos": EOS, "max_length": 9}
SEARCHES = {
    "as it is": {},
    "greedy": {"beam": 1, "n_best": 1},
    "as wide as the vocabulary": {"beam": 30, "n_best": 5},
    "wider than the vocabulary": {"beam": 40, "n_best": 5},
    "two ends": {"eos": [1, 7]},
    "no end": {"eos": []},
    "no penalty": {"finish": NoneBetter(0.0)},
    "long ones": {"finish": NoneBetter(2.0)},
    "short ones": {"finish": NoneBetter(-1.0)},
    "CTranslate2": {"finish": CTranslate2()},
    "CTranslate2, no penalty": {"finish": CTranslate2(0.0)},
    "CTranslate2, patient": {"finish": CTranslate2(1.0, patience=2.0)},
    "Hugging Face": {"finish": HuggingFace()},
    "Hugging Face, early": {"finish": HuggingFace(early_stopping=True)},
    "Hugging Face, late": {"finish": HuggingFace(0.6, early_stopping="never")},
    "minimum length": {"min_length": 4},
    "repetition penalty": {"repetition_penalty": 1.5},
    "reward of repetition": {"repetition_penalty": 0.8},
    "no repeated pair": {"no_repeat_ngram": 2},
    "no repeated token": {"no_repeat_ngram": 1},
    "suppressed": {"suppressed": [[4], [9, 12], [20, 3, 5]]},
    "bias": {"bias": {5: 2.0, 1: -1.0}},
    "bias and penalty": {"bias": {5: 2.0}, "repetition_penalty": 1.3, "ban": [8], "no_repeat_ngram": 3},
    "allow": {"allow": [1, 3, 5, 7, 9, 11]},
    "one class": {"allow": [6], "eos": []},
    "ban": {"ban": [3, 5, 7]},
    "warm": {"temperature": 1.7},
    "one token": {"max_length": 1},
}


def score(contexts):
    return logprobs_of(DENSE, contexts)


def assert_found(found, expected):
    assert len(found) == len(expected)
    for hypothesis, (tokens, score) in zip(found, expected, strict=True):
        assert abs(hypothesis.score - score) < 1e-5
        assert [*hypothesis.tokens, *([] if hypothesis.end is None else [hypothesis.end])] == tokens


def with_rule(options):
    return PLAIN | {"finish": NoneBetter()} | options


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_equal_plain_ones(head, name):
    options = with_rule(SEARCHES[name])
    found = shortlist.beam_search(DECODER.step, head, STATE, [START] * SENTENCES, **options)
    for sentence in range(SENTENCES):
        assert_found(found[sentence], search_plainly(DECODER, score, STATE[sentence : sentence + 1], **options))


@pytest.mark.parametrize("name", SEARCHES)
def test_clients_search_alike(head, server, name):
    options = with_rule(SEARCHES[name])
    expected = shortlist.beam_search(DECODER.step, head, STATE, [START] * SENTENCES, **options)
    with shortlist.Client(server.url) as client:
        found = shortlist.beam_search(DECODER.step, client, STATE, [START] * SENTENCES, model="lm", **options)
    assert [[each.tokens for each in best] for best in found] == [[each.tokens for each in best] for best in expected]

    async def search():
        async with shortlist.AsyncClient(server.url) as client:
            return await shortlist.beam_search_async(
                DECODER.step, client, STATE, [START] * SENTENCES, model="lm", **options
            )

    assert asyncio.run(search()) == found


def test_prefixes_of_different_lengths(head):
    prefixes = [[], [5], [7, 9, 11], [5, 5]]
    options = with_rule({"finish": CTranslate2()})
    found = shortlist.beam_search(DECODER.step, head, STATE, [START] * SENTENCES, prefixes=prefixes, **options)
    for sentence, prefix in enumerate(prefixes):
        state = STATE[sentence : sentence + 1]
        expected = search_plainly(DECODER, score, state, prefix=prefix, **options)
        assert all(each.tokens[: len(prefix)] == prefix for each in found[sentence])
        assert_found(found[sentence], [(prefix + tokens, score) for tokens, score in expected])


def test_alternatives_at_a_place(head):
    prefix = [7, 9]
    first = shortlist.beam_search(
        DECODER.step, head, STATE[:1], [START], prefixes=[prefix], beam=5, n_best=5, max_length=1
    )[0]
    begins = [each.tokens for each in first]
    assert len({tuple(each) for each in begins}) == 5
    found = shortlist.beam_search(
        DECODER.step, head, STATE[:1], [START] * 5, origins=[0] * 5, prefixes=begins, **with_rule({"n_best": 1})
    )
    for begin, best in zip(begins, found, strict=True):
        expected = search_plainly(DECODER, score, STATE[:1], prefix=begin, **with_rule({"n_best": 1}))
        assert_found(best, [(begin + tokens, score) for tokens, score in expected])


def test_a_sentence_alone_equals_the_sentence_beside_others(head):
    options = with_rule({})
    together = shortlist.beam_search(DECODER.step, head, STATE, [START] * SENTENCES, **options)
    for sentence in range(SENTENCES):
        alone = shortlist.beam_search(DECODER.step, head, STATE[sentence : sentence + 1], [START], **options)
        assert [each.tokens for each in alone[0]] == [each.tokens for each in together[sentence]]


def test_finished_sentences_are_dropped(head):
    decoder = Decoder(CLASSES, DIM)
    shortlist.beam_search(
        decoder.step, head, STATE, [START] * SENTENCES, **with_rule({"max_length": 40, "finish": CTranslate2()})
    )
    assert decoder.rows_of_calls[0] == SENTENCES
    assert decoder.rows_of_calls[1] == SENTENCES * PLAIN["beam"]
    assert decoder.rows_of_calls[-1] < SENTENCES * PLAIN["beam"]


def test_totals_are_sums_of_logprobs(head):
    for best in shortlist.beam_search(DECODER.step, head, STATE, [START] * SENTENCES, **PLAIN):
        for each in best:
            assert len(each.logprobs) == len(each.tokens) + (each.end is not None)
            assert abs(sum(each.logprobs) - each.total) < 1e-5


def test_no_sentences(head):
    assert shortlist.beam_search(DECODER.step, head, STATE[:0], [], **PLAIN) == []


def test_sentences_that_cannot_go_on_have_no_hypotheses(head):
    assert shortlist.beam_search(DECODER.step, head, STATE[:1], [START], **PLAIN | {"allow": []}) == [[]]


def walk(tokens, lists):
    """The list of each row [R]: that of its last token."""
    return np.zeros(len(tokens), int) if tokens.shape[1] == 0 else 1 + tokens[:, -1] % (lists - 1)


@pytest.mark.parametrize("source", ["head", "client", "named"])
@pytest.mark.parametrize("beam", [4, 512])
def test_lists_that_depend_on_what_came_before(head, server, source, beam):
    table = RowLists.from_lists([[2, 3, 4], [5, 6, 7, 8], [9, 10], [11, 2, 13]])
    client = shortlist.Client(server.url)
    client.register_lists("tree", table)

    def allow(sentences, tokens):
        numbers = walk(tokens, 4)
        return NamedLists("tree", numbers) if source == "named" else table.for_rows(numbers)

    found = shortlist.beam_search(
        DECODER.step, head if source == "head" else client, STATE, [START] * SENTENCES,
        model="lm", beam=beam, n_best=min(beam, 12), max_length=4, allow=allow,
    )  # fmt: skip
    client.delete_lists("tree")
    client.close()
    for best in found:
        assert len(best) == min(beam, 12)
        for each in best:
            for place, token in enumerate(each.tokens):
                (number,) = walk(np.array([each.tokens[:place]]), 4)
                assert token in table.for_rows([number]).get_row(0)


PAIRS, PENALTY = {"no_repeat_ngram": 2}, {"repetition_penalty": 1.3}
FOR_ALL_ROWS = {  # an option, what its function gives for all rows, and the same for each row
    "no bans": (PAIRS, "ban", None, []),
    "bans": (PAIRS, "ban", [3, 5, -1], [3, 5]),
    "a table of bans": (PAIRS, "ban", RowLists.from_lists([[3, 5]]), [3, 5]),
    "a bias": (PENALTY, "bias", {5: 2.0}, {5: 2.0}),
    "a list of one bias": (PENALTY, "bias", [{5: 2.0}], {5: 2.0}),
}


@pytest.mark.parametrize("name", FOR_ALL_ROWS)
def test_functions_may_give_the_same_for_all_rows(head, name):
    options, option, given, each = FOR_ALL_ROWS[name]
    found, expected = (
        shortlist.beam_search(DECODER.step, head, STATE, [START] * SENTENCES, **PLAIN, **options, **{option: function})
        for function in (lambda sentences, tokens: given, lambda sentences, tokens: [each] * len(tokens))
    )
    assert found == expected


def give_wrong_rows(state, tokens, parents):
    contexts, state = DECODER.step(state, tokens, parents)
    return contexts[:-1], state


def give_no_numbers(state, tokens, parents):
    contexts, state = DECODER.step(state, tokens, parents)
    return contexts * np.nan, state


WRONG = {
    "wrong rows": (give_wrong_rows, {}, "step gave 3 contexts for 4 tokens"),
    "NaN": (give_no_numbers, {}, "contexts row 0 holds NaN"),
    "no beam": (DECODER.step, {"beam": 0}, "beam is 0"),
    "too many wanted": (DECODER.step, {"n_best": 9}, "n_best is 9 but 4 beams give 1 to 4"),
    "a length of 0": (DECODER.step, {"max_length": 0}, "max_length is 0"),
    "lengths that cross": (DECODER.step, {"min_length": 20}, "min_length is 20, over max_length"),
    "no such option": (DECODER.step, {"beams": 3}, "beam_search has no option 'beams'"),
    "an empty sequence": (DECODER.step, {"suppressed": [[]]}, "suppressed holds a sequence without tokens"),
    "a sequence of what is no class": (DECODER.step, {"suppressed": [[1, 99]]}, "suppressed holds id 99 but classes"),
    "too few prefixes": (DECODER.step, {"prefixes": [[1]]}, "prefixes are 1 for 4 sentences"),
    "a penalty of 0": (DECODER.step, {"repetition_penalty": 0}, "repetition_penalty is 0"),
    "a ban that is no list": (DECODER.step, {"ban": 5, "no_repeat_ngram": 2}, "ban must be whole numbers"),
    "bans of other rows": (DECODER.step, {"ban": [[1], [2]], "suppressed": [[3]]}, "ban has 2 rows for 4 contexts"),
    "a bias of two arrays": (DECODER.step, {"bias": ([1], [2.0]), "repetition_penalty": 1.5}, "bias must map ids"),
    "an end that is no class": (DECODER.step, {"eos": [99]}, "eos holds id 99"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(head, name):
    step, options, sentence = WRONG[name]
    with pytest.raises(BadInput, match=sentence):
        shortlist.beam_search(step, head, STATE, [START] * SENTENCES, **PLAIN | options)


def test_a_client_needs_a_model(server):
    with shortlist.Client(server.url) as client, pytest.raises(BadInput, match="needs the name of the model"):
        shortlist.beam_search(DECODER.step, client, STATE, [START] * SENTENCES, **PLAIN)


def test_lists_that_are_not_registered(server):
    with shortlist.Client(server.url) as client, pytest.raises(NotFound, match="no lists are registered as 'gone'"):
        shortlist.beam_search(
            DECODER.step, client, STATE, [START] * SENTENCES, model="lm", allow=NamedLists("gone"), **PLAIN
        )


def test_a_server_that_dies_in_the_middle(repository):
    with RunningServer(repository) as server, shortlist.Client(server.url) as client:
        calls = []

        def step(state, tokens, parents):
            calls.append(1)
            if len(calls) == 3:
                server.process.kill()
                server.process.wait()
            return DECODER.step(state, tokens, parents)

        with pytest.raises(Unreachable, match="cannot be reached"):
            shortlist.beam_search(step, client, STATE, [START] * SENTENCES, model="lm", **PLAIN)
    assert len(calls) == 3
