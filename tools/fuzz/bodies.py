"""Spoilt requests through the codec and a real head: nothing but our own errors, no hang, no growth."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import coverage
import orjson
from shortlist.bundle.reader import Bundle
from shortlist.errors import ShortlistError
from shortlist.head import Head
from shortlist.server.codecs import v2_request, v2_response, v2_template
from shortlist.server.codecs.shared_memory import SHARED_MEMORY_FOLDER, SharedMemory
from shortlist.server.codecs.v2_request import InferCodec
from shortlist.server.messages.headers import JSON_LENGTH
from shortlist.server.models import printable_labels
from shortlist.server.scheduling.tasks import SizeLimits, make_task
from shortlist.server.settings import Settings
from shortlist.wire import open_inference

from tests.support.layers import make_small_repository

from .mutations import spoilt
from .valid import REGION, REGION_BYTES, Valid, valid_request

OUT = Path("build/fuzz")
MEASURED = [module.__file__ for module in (v2_request, v2_response, v2_template, open_inference)]
COVERED = 50_000  # requests that are traced: tracing takes time
ENOUGH = 20_000  # requests that must reach LEAST of the branches
LEAST = 95.0
SLOW = 1.0  # seconds of one request
GROWTH = 32 << 20
WARM = 0.2  # part of the requests after which memory is flat
PERMITTED = (400, 413, 501)
MANY = (0, 1, 1, 1, 1, 1, 2, 2, 3, 4)  # mutations of a request


@dataclass
class Report:
    """What came of some requests. failures: the first of each kind."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0
    growth: int = 0
    seconds: float = 0.0
    coverage: float | None = None
    missing: str = ""

    def add(self, other: Report) -> None:
        """Another process's."""
        self.count += other.count
        self.outcomes += other.outcomes
        self.failures |= other.failures
        self.slowest, self.growth = max(self.slowest, other.slowest), max(self.growth, other.growth)
        self.coverage, self.missing = (
            (self.coverage, self.missing) if self.coverage else (other.coverage, other.missing)
        )

    def wrong(self) -> list[str]:
        """What is not as it must be."""
        found = list(self.failures.values())
        if self.growth > GROWTH:
            found.append(f"memory grew by {self.growth >> 20} MiB")
        if self.coverage is not None and self.coverage < LEAST:
            found.append(f"{self.coverage:.1f} % of the branches were reached: {self.missing}")
        return found


class Target:
    """A model's codec and head; the first has labels and shared memory, the other neither."""

    def __init__(self, folder: Path, memory: SharedMemory | None) -> None:
        self.head = Head(Bundle(folder), "cpu", 1)
        labels = printable_labels(self.head) if memory is not None else None
        self.codec = InferCodec(self.head.manifest, labels, memory)
        settings = Settings()
        self.limits = SizeLimits(settings.max_rows, settings.answer_limit)

    def answer(self, body: bytes, header: str | None) -> bytes:
        """As the service answers; raises ShortlistError."""
        match = self.codec.find_template(body, None if header is None else header.encode("latin-1", "replace"))
        if match is not None:
            template, contexts = match
            content, headers = template.encode(template.task.with_contexts(contexts).compute())
        else:
            request = self.codec.decode(body, header)
            task = make_task(self.head, request.query, self.limits)
            self.codec.add_template(request, task)
            content, headers = self.codec.encode(request, task.compute())
        check_answer(content, dict(headers))
        return content


def check_answer(content: bytes, headers: dict[bytes, bytes]) -> None:
    """The JSON can be read, and announces the bytes that follow."""
    length = int(headers.get(JSON_LENGTH, len(content)))
    outputs = orjson.loads(content[:length])["outputs"]
    announced = sum(output.get("parameters", {}).get("binary_data_size", 0) for output in outputs)
    assert length + announced == len(content), "the answer's length is not what it announces"


class Machine:
    """Both targets, and the shared region that the first may use."""

    def __init__(self, repository: Path, file: Path) -> None:
        self.file = os.open(file, os.O_RDWR)
        self.memory = SharedMemory()
        self.memory.register(REGION, f"/{file.name}", 0, REGION_BYTES)
        self.targets = [Target(repository / "lm" / "1", self.memory), Target(repository / "dense" / "1", None)]

    def outcome(self, target: Target, request: Valid, body: bytes, header: str | None) -> tuple[str, bytes]:
        """`200` and the answer, or a status and a sentence."""
        if b"shared_memory" in body:
            self.fill(request)
        try:
            return "200", target.answer(body, header)
        except ShortlistError as error:
            if error.status not in PERMITTED:
                raise
            return str(error.status), str(error).encode()

    def fill(self, request: Valid) -> None:
        """The region as the request's maker left it."""
        os.pwrite(self.file, bytes(REGION_BYTES), 0)
        for offset, content in request.memory.items():
            os.pwrite(self.file, content, offset)

    def close(self) -> None:
        self.memory.unregister()
        os.close(self.file)


@contextlib.contextmanager
def machine(repository: Path) -> Iterator[Machine]:
    """With a shared memory object that is gone afterwards."""
    file = SHARED_MEMORY_FOLDER / f"shortlist-fuzz-{uuid.uuid4().hex}"
    file.write_bytes(bytes(REGION_BYTES))
    opened = Machine(repository, file)
    try:
        yield opened
    finally:
        opened.close()
        file.unlink()


def made(seed: int, index: int) -> tuple[Valid, bytes, str | None, int]:
    """A request, its bytes and header, and how often it was mutated."""
    random = Random(f"{seed} {index}")
    request = valid_request(random)
    many = random.choice(MANY)
    return request, *spoilt(request, random, many), many


def tried(machine: Machine, seed: int, index: int, report: Report) -> None:
    """One request, twice: the second time its template is known, and must not matter."""
    request, body, header, many = made(seed, index)
    target = machine.targets[index % 4 == 0]
    refusable = many > 0 or (target is machine.targets[1] and b"shared_memory" in body)
    started = time.thread_time()
    try:
        first, second = (machine.outcome(target, request, body, header) for _ in range(2))
        assert first == second, f"{first} became {second} when it was asked again"
        assert refusable or first[0] == "200", f"a valid request was refused: {first}"
        report.outcomes[first[0]] += 1
    except Exception as error:
        note(report, seed, index, body, header, error)
    taken = time.thread_time() - started
    report.slowest = max(report.slowest, taken)
    if taken > SLOW:
        note(report, seed, index, body, header, TimeoutError(f"took {taken:.2f} s"))


def note(report: Report, seed: int, index: int, body: bytes, header: str | None, error: Exception) -> None:
    """Keep the first failure of each kind, and its body."""
    report.outcomes[type(error).__name__] += 1
    frames = traceback.extract_tb(error.__traceback__)
    kind = f"{type(error).__name__} {frames[-1].name if frames else ''}"
    if kind in report.failures:
        return
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{seed}-{index}.body"
    path.write_bytes(body)
    path.with_suffix(".header").write_text(repr(header))
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:]))
    report.failures[kind] = (
        f"{type(error).__name__}: {str(error)[:300]} ({where}); --seed {seed} --first {index}, {path}"
    )


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_part(repository: Path, seed: int, first: int, count: int, traced: int) -> Report:
    """Requests first..first + count, the first `traced` under coverage."""
    report, started = Report(count), time.monotonic()
    with machine(repository) as opened:
        with tracing(report, traced):
            for index in range(first, first + traced):
                tried(opened, seed, index, report)
        before = None
        for index in range(first + traced, first + count):
            if index >= first + traced + WARM * (count - traced):
                before = before or resident()
            tried(opened, seed, index, report)
        report.growth = resident() - before if before else 0
    report.seconds = time.monotonic() - started
    return report


@contextlib.contextmanager
def tracing(report: Report, traced: int) -> Iterator[None]:
    """Which branches are reached meanwhile."""
    if not traced:
        yield
        return
    tracer = coverage.Coverage(branch=True, include=MEASURED, data_file=None, config_file=False)
    with tracer.collect():
        yield
    report.coverage, report.missing = branches(tracer)


def branches(tracer: coverage.Coverage) -> tuple[float, str]:
    """Percent of the branches that were reached, and those that were not."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file, contextlib.redirect_stdout(io.StringIO()):
        tracer.json_report(outfile=file.name)
        found = json.loads(Path(file.name).read_text())
    missing = [
        f"{Path(name).name} {' '.join(f'{a}->{b}' for a, b in each['missing_branches'])}"
        for name, each in found["files"].items()
        if each["missing_branches"]
    ]
    totals = found["totals"]
    return 100 * totals["covered_branches"] / totals["num_branches"], "; ".join(missing)


def run(count: int, seed: int = 0, first: int = 0, workers: int = 1, repository: Path | None = None) -> Report:
    """`count` requests in `workers` processes; coverage of the first's, where they are enough."""
    if repository is None:
        with tempfile.TemporaryDirectory() as folder:
            make_small_repository(Path(folder))
            return run(count, seed, first, workers, Path(folder))
    share = -(-count // workers)
    traced = min(share, COVERED) if share >= ENOUGH else 0
    parts = [(repository, seed, first + start, min(share, count - start)) for start in range(0, count, share)]
    if len(parts) == 1:
        return run_part(*parts[0], traced)
    started, whole = time.monotonic(), Report()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(run_part, *part, traced if part is parts[0] else 0) for part in parts]:
            whole.add(future.result())
    whole.seconds = time.monotonic() - started
    return whole


def show(report: Report) -> None:
    """Figures, then failures."""
    print(f"bodies: {report.count} mutated valid requests, each twice, in {report.seconds:.0f} s")
    print("  outcomes: " + ", ".join(f"{name} {count}" for name, count in report.outcomes.most_common()))
    print(f"  slowest {report.slowest * 1000:.0f} ms of CPU, memory grew by {report.growth / 2**20:.1f} MiB")
    if report.coverage is not None:
        print(f"  {report.coverage:.1f} % of the branches of codec, answers, protocol; not: {report.missing or 'none'}")
    for line in report.wrong():
        print(f"  WRONG {line}")
