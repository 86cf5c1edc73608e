"""The batcher: every row answered once, to its caller."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from shortlist.errors import BadInput, TimedOut
from shortlist.server.scheduling.batcher import MAX_TELLING_ROWS, Batcher
from shortlist.server.scheduling.fair_queue import TURN_ROWS

from tests.support.servers.stepped_pool import DoublingTask, SteppedPool, outcome, settle, step_to_end


def test_an_idle_model_starts_at_once_and_gathers_what_comes_meanwhile():
    async def scenario():
        pool, sizes = SteppedPool(), []
        batcher = Batcher(pool, 64, notify=lambda rows, requests, seconds: sizes.append((rows, requests)))
        tasks = [DoublingTask(1) for _ in range(10)]
        entries = [batcher.submit(task, str(i)) for i, task in enumerate(tasks)]
        await step_to_end(batcher)
        assert sizes == [(1, 1), (9, 9)]
        assert [outcome(each.future) for each in entries] == [task.expected for task in tasks]

    asyncio.run(scenario())


def test_a_delay_waits_for_company_but_not_when_the_batch_is_full():
    async def scenario():
        pool, sizes = SteppedPool(), []
        batcher = Batcher(pool, 8, 3600.0, notify=lambda rows, *_: sizes.append(rows))
        first = batcher.submit(DoublingTask(5))
        await settle(batcher)
        assert not pool.jobs
        second = batcher.submit(DoublingTask(3))
        await step_to_end(batcher)
        assert sizes == [8]
        assert first.future.done()
        assert second.future.done()
        assert not batcher.fits_inline(DoublingTask(1))

    asyncio.run(scenario())


def test_a_delay_ends_by_itself():
    async def scenario():
        with ThreadPoolExecutor(1) as pool:
            task = DoublingTask(5)
            entry = Batcher(pool, 8, 0.001).submit(task)
            assert await asyncio.wait_for(entry.future, 30) == task.expected

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", ["part", "end", "unforeseen"])
def test_one_failing_request_fails_alone(fails):
    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 64)
        first = batcher.submit(DoublingTask(1))
        tasks = [DoublingTask(3), DoublingTask(3, fails=fails), DoublingTask(40), DoublingTask(60)]
        entries = [batcher.submit(task) for task in tasks]
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await step_to_end(batcher)
        assert all(each.future.done() for each in [first, *entries])
        result = [outcome(each.future) for each in entries]
        assert "fails" in str(result.pop(1))
        assert result == [task.expected for task in tasks if task.fails is None]
        assert batcher.queue.rows == 0
        assert not batcher.busy

    asyncio.run(scenario())


def test_a_failed_part_ends_the_request_and_the_rest_of_it_is_not_computed():
    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 16)
        task = DoublingTask(100, fails="part")
        entry = batcher.submit(task)
        await step_to_end(batcher)
        assert isinstance(entry.future.exception(), BadInput)
        assert task.row_log == []
        assert batcher.queue.rows == 0

    asyncio.run(scenario())


def test_dropped_work_is_not_computed_further():
    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 16)
        starts, waits, stays = (DoublingTask(100) for _ in range(3))
        first, second, third = (batcher.submit(task) for task in (starts, waits, stays))
        batcher.expire(first)
        batcher.drop(second)
        await step_to_end(batcher)
        assert isinstance(first.future.exception(), TimedOut)
        assert second.future.cancelled()
        assert third.future.result() == stays.expected
        assert (len(starts.row_log), waits.row_log) == (16, [])

    asyncio.run(scenario())


def test_small_work_in_the_event_loop_leaves_no_one_behind_however_much_waits():
    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 1, inline=3600.0)
        tasks = [DoublingTask(1) for _ in range(3000)]
        entries = [batcher.submit(task) for task in tasks]  # the first goes to a thread: nothing was measured yet
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await step_to_end(batcher)
        assert sum(each.future.done() for each in entries) == len(tasks)
        assert [each.future.result() for each in entries] == [task.expected for task in tasks]

    asyncio.run(scenario())


def test_small_work_is_answered_at_once_only_while_nothing_runs_or_waits():
    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 64, inline=3600.0)
        task = DoublingTask(2)
        assert not batcher.fits_inline(task)  # nothing like it was measured
        entry = batcher.submit(task)
        assert not batcher.fits_inline(task)  # busy
        await step_to_end(batcher)
        assert entry.future.result() == task.expected
        assert batcher.fits_inline(task)
        assert batcher.compute_inline(task)[0] == task.expected
        assert not batcher.fits_inline(DoublingTask(2, separate=True))
        assert batcher.fits_inline(DoublingTask(2, separate=True, varies=False))
        assert not batcher.fits_inline(DoublingTask(2, plan="another"))

    asyncio.run(scenario())


def test_many_rows_raise_what_a_row_is_expected_to_take_and_never_lower_it():
    batcher, task = Batcher(SteppedPool(), 64, inline=0.01), DoublingTask(8)
    batcher.note_row_seconds(task, 1, 0.001)
    batcher.note_row_seconds(task, 8, 0.0008)
    assert batcher.row_seconds[task.kind] == pytest.approx(0.001)
    assert batcher.fits_inline(task)
    for _ in range(20):
        batcher.note_row_seconds(task, 8, 0.08)
    assert not batcher.fits_inline(task)


def test_many_rows_lower_what_many_slow_ones_have_raised():
    batcher, task = Batcher(SteppedPool(), 64, inline=0.0004), DoublingTask(5)
    for number in range(2_000):  # the steps of a search with five beams, every fiftieth beside a busy system
        batcher.note_row_seconds(task, 5, 0.001 if number % 50 == 0 else 0.0001)
    assert batcher.fits_inline(task)
    batcher.note_row_seconds(task, 1, 0.0005)
    assert not batcher.fits_inline(DoublingTask(1))  # many say little of one


def test_what_varies_says_nothing_of_its_kind_unless_batches_are_cut_by_it():
    batcher = Batcher(SteppedPool(), 64, inline=0.01)
    batcher.note_row_seconds(DoublingTask(1, varies=True), 1, 5.0)
    assert not batcher.row_seconds
    batcher.note_row_seconds(DoublingTask(1, varies=True, is_lone=True), 1, 5.0)
    assert batcher.row_seconds


def test_nobody_waits_for_the_whole_of_anothers_large_request():
    async def scenario():
        pool = SteppedPool()
        batcher = Batcher(pool, 2 * TURN_ROWS)
        large = batcher.submit(DoublingTask(10_000), "a")
        small = batcher.submit(DoublingTask(1), "b")
        third = batcher.submit(DoublingTask(1), "a")
        for _ in range(3):
            await settle(batcher)
            pool.step()
        await settle(batcher)
        assert small.future.done()
        assert third.future.done()
        assert large.rows_started < 200

    asyncio.run(scenario())


def test_work_that_gains_nothing_by_gathering_stays_longer_in_the_event_loop():
    async def scenario():
        batcher = Batcher(SteppedPool(), 64, inline=0.001)
        for milliseconds, gathers, is_lone in ((0.9, True, True), (2.9, False, True), (3.1, False, False)):
            batcher.row_seconds[DoublingTask(1).kind] = milliseconds / 1e3
            assert batcher.fits_inline(DoublingTask(1)) == gathers
            assert batcher.fits_inline(DoublingTask(1, is_lone=True)) == is_lone

    asyncio.run(scenario())


def test_rows_that_gain_nothing_by_gathering_make_short_batches(monkeypatch):
    """So that nobody waits for 64 dear rows of another; also where rows were cheap until now."""
    row_seconds = [0.0004]

    def compute(slices):
        return [each.task.expected for each in slices], row_seconds[0] * sum(each.rows for each in slices)

    async def scenario():
        pool, sizes = SteppedPool(), []
        batcher = Batcher(pool, 64, notify=lambda rows, *_: sizes.append(rows))
        batcher.submit(DoublingTask(1000, separate=True, is_lone=True))
        for row_seconds[0] in (0.0004, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02):
            await settle(batcher)
            pool.step()
        await settle(batcher)
        assert sizes[:2] == [MAX_TELLING_ROWS, 64]
        assert sizes[-1] == 3
        assert sorted(sizes[1:], reverse=True) == sizes[1:]

    monkeypatch.setattr("shortlist.server.scheduling.batcher.compute_batch", compute)
    asyncio.run(scenario())
