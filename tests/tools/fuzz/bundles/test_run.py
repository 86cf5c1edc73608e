"""A few hundred mutated bundles of every method; `make fuzz` takes 10,000."""

import json

import pytest
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head

from tools.fuzz.bundles import run
from tools.fuzz.bundles.draft import Draft
from tools.fuzz.bundles.mutations import make_draft
from tools.fuzz.bundles.samples import write_samples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return write_samples(tmp_path_factory.mktemp("samples"))


def test_bundles_that_lie_are_refused_or_answer_as_they_should(samples):
    report = run.run(240, seed=7, samples=samples)
    assert report.failures == []
    assert sum(report.outcomes.values()) == 240
    assert min(report.outcomes["refused"], report.outcomes["harmless"], report.outcomes["failed its canary"]) > 20


def test_samples_have_every_plan_and_pass_as_they_are(samples, tmp_path):
    plans = set()
    for source in samples:
        folder = tmp_path / source.parent.name / "1"
        Draft(source).write(folder)
        bundle = Bundle(folder)
        check_canary(Head(bundle, "cpu", 1), bundle)
        plans.add(bundle.manifest.plan)
    assert plans == {"full", "preview", "cascade", "grouped", "screen", "gated", "adaptive", "mixture"}


def test_a_mutation_is_made_of_its_seed_and_number_alone(samples, tmp_path):
    for index in range(30):
        drafts = [make_draft(samples, 3, index) for _ in range(2)]
        assert drafts[0].notes == drafts[1].notes
        assert repr(drafts[0].content) == repr(drafts[1].content)
        assert drafts[0].files == drafts[1].files


def test_a_draft_is_sealed_as_an_export_is_and_its_source_stays(samples, tmp_path):
    source = next(sample for sample in samples if sample.parent.name == "grouped")
    before = (source / "index.safetensors").read_bytes()
    draft = Draft(source)
    arrays = draft.read_arrays("index.safetensors")
    arrays["scale"][0] *= 2
    draft.write_arrays("index.safetensors", arrays)
    draft.write(tmp_path / "1")
    assert Bundle(tmp_path / "1").tensors("index.safetensors")["scale"][0] == arrays["scale"][0]
    assert (source / "index.safetensors").read_bytes() == before
    assert json.loads((source / "manifest.json").read_bytes())["digest"] != draft.content["digest"]


def test_a_failure_says_how_to_repeat_it(samples, capsys):
    sentence = run.describe_failure(samples, 3, 5, "KeyError")
    assert sentence.startswith(samples[5].parent.name)
    assert sentence.endswith(": KeyError; --seed 3 --first 5")
    run.show(run.Report(30, failures=[sentence] * 30))
    output = capsys.readouterr().out
    assert f"WRONG {sentence}" in output
    assert "and 10 more" in output
