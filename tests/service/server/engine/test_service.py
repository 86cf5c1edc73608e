"""The service's models while they are loaded again: what belongs to a version that was dropped is let go of."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import time
import weakref

import pytest

from tests.support.layers import copy_writable
from tests.support.servers.gateway import LENGTH, ROWS, Pair, ask_binary, binary
from tests.support.servers.stepped_pool import SteppedPool

VERSION_1 = "/v2/models/lm/versions/1/infer"
LOAD = "/v2/repository/models/lm/load"
TEXT, BLOB = binary(ROWS[:1])


@pytest.fixture
def repository(small_repository, tmp_path):
    """Versions 1 and 2 of `lm`."""
    for version in ("1", "2"):
        copy_writable(small_repository / "lm" / "1", tmp_path / "lm" / version)
    return tmp_path


@pytest.fixture
def pair(repository):
    pair = Pair(repository, triton_metrics=True, model_control="explicit")
    yield pair
    pair.close()


def drop_version_1(pair, repository):
    shutil.move(repository / "lm" / "1", repository.parent / f"{repository.name}-dropped")
    assert pair.ask(LOAD).status_code == 200


def read_metrics(pair):
    pair.service.settle()
    return pair.service.metrics.render().decode()


def is_freed(head):
    """Whether nothing refers to a head any more, soon: one of its rows may be about to be asked again."""
    for _ in range(100):
        gc.collect()
        if head() is None:
            return True
        time.sleep(0.05)
    return False


def test_a_dropped_version_is_let_go_of(pair, repository):
    for _ in range(4):
        assert ask_binary(pair, TEXT, BLOB, VERSION_1).status_code == 200
    head = weakref.ref(pair.service.models.find("lm", 1).head)
    drop_version_1(pair, repository)
    assert ask_binary(pair, TEXT, BLOB, VERSION_1).status_code == 404
    assert ask_binary(pair, TEXT, BLOB).status_code == 200
    assert is_freed(head)
    assert [model.version for model in pair.service.served_models] == [2]
    lines = read_metrics(pair).splitlines()
    ready = [line for line in lines if line.startswith("shortlist_model_info{")]
    assert [line.partition("version=")[2] for line in ready] == ['"2"} 1.0']
    about = [line for line in lines if line.startswith(("shortlist_model_", "shortlist_canary{"))]
    assert any(line.startswith("shortlist_model_quality{") for line in about)
    assert not any('version="1"' in line for line in about), "neither its quality nor its canary is shown any more"


def test_a_repository_that_is_away_is_a_metric_and_the_server_stays_ready(pair, repository):
    assert "shortlist_repository_present 1.0" in read_metrics(pair)
    repository.rename(repository.with_suffix(".away"))
    pair.service.changes.releases.list_models()
    assert "shortlist_repository_present 0.0" in read_metrics(pair)
    assert pair.ask("/readyz", method="GET").status_code == 200
    assert ask_binary(pair, TEXT, BLOB).status_code == 200
    repository.with_suffix(".away").rename(repository)
    pair.service.changes.releases.list_models()
    assert "shortlist_repository_present 1.0" in read_metrics(pair)


def test_the_series_of_a_dropped_version_are_shown_once_more(pair, repository):
    """Each release left 248 lines of metrics behind, for ever."""
    assert ask_binary(pair, TEXT, BLOB, VERSION_1).status_code == 200
    read_metrics(pair)
    drop_version_1(pair, repository)
    assert 'shortlist_requests_total{code="200",endpoint="infer",model="lm",version="1"} 2.0' in read_metrics(pair)
    assert 'version="1"' not in read_metrics(pair)


def test_requests_that_run_are_answered_and_counted_before_their_version_is_let_go_of(pair, repository):
    served_model, pool = pair.service.find_model("lm", 1), SteppedPool()
    served_model.batcher.pool = pool
    head = weakref.ref(served_model.model.head)

    async def ask_while_it_is_dropped():
        client = pair.clients[0]
        running = asyncio.create_task(client.post(VERSION_1, content=TEXT + BLOB, headers={LENGTH: str(len(TEXT))}))
        while not pool.jobs:
            await asyncio.sleep(0.01)
        shutil.move(repository / "lm" / "1", repository.parent / f"{repository.name}-dropped")
        assert (await client.post(LOAD)).status_code == 200
        assert head() is not None
        pool.step()
        return await running

    response = pair.runner.run(ask_while_it_is_dropped())
    assert response.status_code == 200
    assert json.loads(response.content[: int(response.headers[LENGTH])])["model_version"] == "1"
    assert 'shortlist_requests_total{code="200",endpoint="infer",model="lm",version="1"} 1.0' in read_metrics(pair)
    del served_model, response
    assert is_freed(head)


def test_a_version_that_comes_back_has_one_series(pair, repository):
    assert ask_binary(pair, TEXT, BLOB, VERSION_1).status_code == 200
    drop_version_1(pair, repository)
    shutil.copytree(repository / "lm" / "2", repository / "lm" / "1")
    assert pair.ask(LOAD).status_code == 200
    assert ask_binary(pair, TEXT, BLOB, VERSION_1).status_code == 200
    series = [line for line in read_metrics(pair).splitlines() if line.startswith("nv_inference_request_success{")]
    assert len(series) == len({line.partition("}")[0] for line in series}) == 1
    assert 'shortlist_requests_total{code="200",endpoint="infer",model="lm",version="1"} 4.0' in read_metrics(pair)


def test_a_version_that_was_loaded_again_beside_one_that_fails_lets_go_of_its_former_head(pair, repository):
    for _ in range(4):
        assert ask_binary(pair, TEXT, BLOB, VERSION_1).status_code == 200
    head = weakref.ref(pair.service.models.find("lm", 1).head)
    (repository / "lm" / "2" / "manifest.json").write_text("{}")
    assert pair.ask(LOAD).status_code == 500
    assert is_freed(head)
