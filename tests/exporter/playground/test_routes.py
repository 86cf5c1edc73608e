import json
import time

import numpy as np
import pytest
import torch
from shortlist_exporter.inputs.sources import load_contexts
from shortlist_exporter.playground.routes import FOLDER, SHARED_FOLDER

from tests.exporter.playground.site import CLASSES, LARGE_CLASSES, LONG_LABEL, Site

pytestmark = pytest.mark.slow

TEXT = "w3 w7 w9"
MAX_PAGE_BYTES = 150_000
MOST_SECONDS = 30.0  # until a row is asked again
ASKER, WATCHER = "asker-of-the-test-0123456789", "watcher-of-the-test-0123456789"


def own_probabilities(language_model, tokens):
    """[V] by the model itself, in float64."""
    with torch.inference_mode():
        logits = language_model.model(torch.tensor([tokens])).logits[0, -1].double().numpy()
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def ids_of(side):
    return [candidate["id"] for candidate in side["candidates"]]


def test_the_heads_and_what_reads_text(site, model_folder):
    overview = site.get("/playground/heads").json()
    assert overview["body"] == model_folder.name
    assert overview["waits"] is None
    reads = {head["name"]: head["reads"] for head in overview["heads"]}
    assert reads == {"lm": True, "hostile": True, "large": False}
    assert {head["name"]: head["classes"] for head in overview["heads"]}["large"] == LARGE_CLASSES


@pytest.mark.parametrize("model", ["lm", "hostile"])
def test_the_dense_side_is_what_the_model_says_itself(site, language_model, model):
    answer = site.ask(model=model, text=TEXT, k=5)
    side = answer["rows"][0]["dense"]
    wanted = own_probabilities(language_model, [3, 7, 9])
    assert ids_of(side) == np.argsort(-wanted, kind="stable")[:5].tolist()
    np.testing.assert_allclose([c["probability"] for c in side["candidates"]], -np.sort(-wanted)[:5], rtol=1e-3)
    assert side["scored"] == answer["classes"] == CLASSES


def test_the_head_s_side_is_what_the_head_answers(site, head, body):
    row = site.ask(model="lm", text=TEXT, k=8)["rows"][0]
    top = head.topk(body.read(TEXT, []), 8)
    assert ids_of(row["head"]) == top.ids[0].tolist()
    assert row["head"]["scored"] == top.scored[0] < CLASSES
    np.testing.assert_allclose(
        [c["probability"] for c in row["head"]["candidates"]], np.exp(top.logprobs[0]), rtol=1e-4
    )


def test_each_candidate_knows_its_place_on_the_other_side(site):
    rows = [site.ask(model="lm", text=f"w{i} w{i + 1}", k=6)["rows"][0] for i in range(1, 20)]
    for row in rows:
        for one, other in (("head", "dense"), ("dense", "head")):
            places = {number: place for place, number in enumerate(ids_of(row[other]), 1)}
            assert [c["place"] for c in row[one]["candidates"]] == [places.get(i) for i in ids_of(row[one])]
        assert row["agrees"] == (ids_of(row["head"])[0] == ids_of(row["dense"])[0])
    assert any(c["place"] is None for row in rows for c in row["head"]["candidates"])  # the head is that bad


def test_words_go_on_from_the_text(site):
    apart = site.ask(model="lm", text=TEXT, words=[5, 2], k=5)
    whole = site.ask(model="lm", text=f"{TEXT} w5 w2", k=5)
    assert ids_of(apart["rows"][0]["dense"]) == ids_of(whole["rows"][0]["dense"])


def test_exact_answers_are_the_dense_layer_s(site):
    for i in range(1, 12):
        row = site.ask(model="lm", text=f"w{i}", k=7, exact=True)["rows"][0]
        assert ids_of(row["head"]) == ids_of(row["dense"])
        assert row["head"]["risk"] == 0


def test_lists_hold_for_both_sides(site):
    allowed = site.ask(model="lm", text=TEXT, allow=["w4", "5", " w6 "], k=10)["rows"][0]
    assert sorted(ids_of(allowed["head"])) == sorted(ids_of(allowed["dense"])) == [4, 5, 6]
    (best, *_) = ids_of(site.ask(model="lm", text=TEXT)["rows"][0]["dense"])
    banned = site.ask(model="lm", text=TEXT, ban=[str(best)])["rows"][0]
    assert best not in ids_of(banned["head"]) + ids_of(banned["dense"])


def test_times_of_both_sides_and_of_the_model(site):
    times = site.ask(model="lm", text=TEXT)["times"]
    assert all(0 < times[name] < 5e6 for name in ("head", "dense", "body"))
    assert site.ask(model="large", contexts=[[0.1] * 16])["times"]["body"] is None


def test_pasted_vectors_are_rows(site, head):
    contexts = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    rows = site.ask(model="lm", contexts=contexts.tolist(), k=4)["rows"]
    assert [ids_of(row["head"]) for row in rows] == head.topk(contexts, 4).ids.tolist()


def test_vectors_that_the_export_held_out_go_round(site, repository):
    held_out = load_contexts(repository / "lm" / "1" / "calibration.safetensors").contexts
    texts = [
        site.get(f"/playground/vectors?model=lm&version=1&row={row}").json()["text"] for row in (1, len(held_out) + 1)
    ]
    assert texts[0] == texts[1]
    np.testing.assert_array_equal(np.array(json.loads(texts[0]), np.float32), held_out[1:2])


def test_labels_come_short_and_else_as_they_are(site):
    labels = [c["label"] for c in site.ask(model="hostile", text=TEXT, k=40)["rows"][0]["dense"]["candidates"]]
    assert max(map(len, labels)) == 200
    assert any(label.endswith("\N{HORIZONTAL ELLIPSIS}") and label[:199] == LONG_LABEL[:199] for label in labels)
    assert any(label.startswith("<b>bold</b><script>") for label in labels)


def test_a_word_among_200_000(site):
    row = site.ask(model="large", contexts=[[0.5] * 16], allow=["item 199999", "item 3"])["rows"][0]
    assert sorted(ids_of(row["head"])) == [3, 199_999]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"text": ""}, "there is no text: type a word first"),
        ({"text": "w1 " * 80}, "the text has 80 tokens but"),
        ({"text": "w1", "words": [-1]}, f"word -1 is no class: there are {CLASSES}"),
        ({"text": "w1", "words": [CLASSES]}, f"word {CLASSES} is no class: there are {CLASSES}"),
        ({"text": "w1", "ban": ["nonsense"]}, "no class of lm is called 'nonsense'"),
        ({"text": "w1", "ban": ["999"]}, "999"),
        ({"contexts": [[1.0]]}, "16"),
        ({"contexts": [[1.0] * 16, [1.0] * 15]}, "the vectors have 15 to 16 numbers"),
        ({"contexts": [[1.0] * 16] * 21}, "contexts cannot be used: list should have at most 20 items"),
        ({"text": "w1", "k": 0}, "k cannot be used: input should be greater than or equal to 1"),
        ({"text": "w1", "more": 1}, "more cannot be used: extra inputs are not permitted"),
    ],
)
def test_refusals_say_why(site, question, sentence):
    assert sentence in site.refuse(model="lm", **question)


def test_no_text_is_read_for_a_head_of_another_layer(site):
    assert site.refuse(model="large", text=TEXT) == "large has no model here that reads text: paste vectors"
    assert "absent" in site.refuse(model="absent", text=TEXT)


def test_a_body_that_is_no_json_is_refused(site):
    response = site.runner.run(
        site.client.post("/playground/next", content=b"{", headers={"content-type": "application/json"})
    )
    assert response.status_code == 400
    assert response.json()["error"].startswith("the body is no JSON: ")


def test_questions_are_counted_and_asked_again_like_any_request(site):
    name = 'shortlist_requests_total{code="200",endpoint="topk",model="lm",version="1"}'

    def count():
        lines = site.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    before = count()
    site.ask(model="lm", text=TEXT)
    assert count() == before + 1
    end = time.monotonic() + MOST_SECONDS
    while site.get("/v1/models/lm").json()["served_precision"] is None:  # asked again beside what is asked
        assert time.monotonic() < end


def test_pages_of_other_hosts_and_names_cannot_ask(site):
    question = {"model": "lm", "text": TEXT}
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        assert site.post("/playground/next", question, headers=headers).status_code in (400, 403)


def test_keys_and_their_roles(repository, body, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"a ask {ASKER}\nw observe {WATCHER}\n")
    keys.chmod(0o600)
    site = Site(repository, body, api_keys_file=keys)
    try:
        question = {"model": "lm", "text": TEXT}
        ask, watch = ({"authorization": f"Bearer {key}"} for key in (ASKER, WATCHER))
        assert site.post("/playground/next", question).status_code == 401
        assert site.get("/playground/heads").status_code == 401
        assert site.post("/playground/next", question, headers=watch).status_code == 403
        assert site.post("/playground/next", question, headers=ask).status_code == 200
        assert site.get("/playground/heads", headers=watch).status_code == 200
        assert site.get("/").status_code == 200
        assert "$SHORTLIST_KEY" in site.post("/playground/snippets", question, headers=ask).json()["curl"]
        assert ASKER not in site.post("/playground/snippets", question, headers=ask).text
    finally:
        site.close()


def test_the_page_is_small_and_lets_nothing_else_in(site):
    response = site.get("/")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    parts = {f"/playground/page/{path.name}": path for path in files}
    parts["/overview/metrics.js"] = SHARED_FOLDER / "metrics.js"
    sizes = [len(site.get(path).content) for path in parts]
    assert sizes == [path.stat().st_size for path in parts.values()]
    assert sum(sizes) < MAX_PAGE_BYTES
