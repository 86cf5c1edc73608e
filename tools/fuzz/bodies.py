"""Mutated requests through the codec and a real head: only ShortlistErrors, no hang, no growth of memory."""

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
from functools import partial
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
from shortlist.server.codecs.v2_response import encode_and_compress
from shortlist.server.messages.compression import decompress
from shortlist.server.messages.headers import CONTENT_ENCODING, CONTENT_LENGTH, JSON_LENGTH
from shortlist.server.scheduling.tasks import SizeLimits, make_task
from shortlist.server.settings import Settings
from shortlist.wire import open_inference

from tests.support.layers import make_small_repository

from .mutations import mutate
from .valid import REGION, REGION_BYTES, Valid, make_valid_request

FAILURES_FOLDER = Path("build/fuzz")
TRACED_FILES = [module.__file__ for module in (v2_request, v2_response, v2_template, open_inference)]
MAX_TRACED_REQUESTS = 50_000  # tracing takes time
MIN_TRACED_REQUESTS = 20_000  # from which on coverage is judged
MIN_COVERAGE_PERCENT = 95.0  # of the branches
MAX_ANSWER_BYTES = 1 << 20
ACCEPT_ENCODINGS = (b"", b"gzip", b"deflate, gzip;q=0.5", b"identity")
MAX_REQUEST_SECONDS = 1.0  # of CPU
MAX_GROWTH_BYTES = 32 << 20
FUZZ_WARM_UP_SHARE = 0.2  # of the requests, after which memory is flat
REFUSAL_STATUSES = (400, 413, 501)
MUTATION_COUNTS = (0, 1, 1, 1, 1, 1, 2, 2, 3, 4)  # of a request


@dataclass
class Report:
    """Outcomes of some requests. failures: the first of each kind."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0
    growth: int = 0
    seconds: float = 0.0
    coverage: float | None = None
    missing: str = ""

    def add(self, other: Report) -> None:
        """Add the report of another process."""
        self.count += other.count
        self.outcomes += other.outcomes
        self.failures |= other.failures
        self.slowest, self.growth = max(self.slowest, other.slowest), max(self.growth, other.growth)
        self.coverage, self.missing = (
            (self.coverage, self.missing) if self.coverage else (other.coverage, other.missing)
        )

    def list_wrong(self) -> list[str]:
        """List what is not as it must be."""
        faults = list(self.failures.values())
        if self.growth > MAX_GROWTH_BYTES:
            faults.append(f"memory grew by {self.growth >> 20} MiB")
        if self.coverage is not None and self.coverage < MIN_COVERAGE_PERCENT:
            faults.append(f"{self.coverage:.1f} % of the branches were reached: {self.missing}")
        return faults


class Target:
    """A model's codec and head; the first has labels and shared memory, the other neither."""

    def __init__(self, folder: Path, memory: SharedMemory | None) -> None:
        self.head = Head(Bundle(folder), "cpu", 1)
        labels = self.head.label_array if memory is not None else None
        self.codec = InferCodec(self.head.manifest, labels, memory)
        settings = Settings()
        self.limits = SizeLimits(settings.max_rows, settings.answer_limit)

    def answer(self, body: bytes, header: str | None) -> bytes:
        """Decode, compute and encode as the service does; raises ShortlistError."""
        template = self.codec.find_template(body, None if header is None else header.encode("latin-1", "replace"))
        if template is not None:
            contexts = template.layout.read(body)
            content, headers = template.encode(template.task.with_contexts(contexts).compute())
        else:
            request = self.codec.decode(body, header)
            task = make_task(self.head, request.query, self.limits)
            self.codec.add_template(request, task)
            encode = partial(self.codec.encode, request)
            accept = ACCEPT_ENCODINGS[len(body) % len(ACCEPT_ENCODINGS)]
            content, headers = encode_and_compress(encode, accept, task.compute())
        return check_answer(content, dict(headers))


def check_answer(content: bytes, headers: dict[bytes, bytes]) -> bytes:
    """Check that the JSON can be read, and announces the bytes that follow it; returns the answer uncompressed."""
    if CONTENT_ENCODING in headers:
        assert int(headers[CONTENT_LENGTH]) == len(content), "a compressed answer's length is not what it announces"
        content = decompress(content, headers[CONTENT_ENCODING].decode(), MAX_ANSWER_BYTES)
    length = int(headers.get(JSON_LENGTH, len(content)))
    outputs = orjson.loads(content[:length])["outputs"]
    binary_bytes = sum(output.get("parameters", {}).get("binary_data_size", 0) for output in outputs)
    assert length + binary_bytes == len(content), "the answer's length is not what it announces"
    return content


class Targets:
    """Both targets, and the shared region that the first may use."""

    def __init__(self, repository: Path, file: Path) -> None:
        self.file = os.open(file, os.O_RDWR)
        self.memory = SharedMemory()
        self.memory.register(REGION, f"/{file.name}", 0, REGION_BYTES)
        self.targets = [Target(repository / "lm" / "1", self.memory), Target(repository / "dense" / "1", None)]

    def send(self, target: Target, request: Valid, body: bytes, header: str | None) -> tuple[str, bytes]:
        """Return `200` and the response, or another status and the error's sentence."""
        if b"shared_memory" in body:
            self.fill_region(request)
        try:
            return "200", target.answer(body, header)
        except ShortlistError as error:
            if error.status not in REFUSAL_STATUSES:
                raise
            return str(error.status), str(error).encode()

    def fill_region(self, request: Valid) -> None:
        """Write what the request says that the region holds."""
        os.pwrite(self.file, bytes(REGION_BYTES), 0)
        for offset, content in request.memory.items():
            os.pwrite(self.file, content, offset)

    def close(self) -> None:
        self.memory.unregister()
        os.close(self.file)


@contextlib.contextmanager
def open_targets(repository: Path) -> Iterator[Targets]:
    """Open both targets, with a shared memory object that is removed afterwards."""
    file = SHARED_MEMORY_FOLDER / f"shortlist-fuzz-{uuid.uuid4().hex}"
    file.write_bytes(bytes(REGION_BYTES))
    targets = Targets(repository, file)
    try:
        yield targets
    finally:
        targets.close()
        file.unlink()


def make_request(seed: int, index: int) -> tuple[Valid, bytes, str | None, int]:
    """Make a request, its bytes and header; the last number is how often it was mutated."""
    random = Random(f"{seed} {index}")
    request = make_valid_request(random)
    many = random.choice(MUTATION_COUNTS)
    return request, *mutate(request, random, many), many


def send_twice(targets: Targets, seed: int, index: int, report: Report) -> None:
    """Send one request twice; the second time its template is cached, which must not matter."""
    request, body, header, many = make_request(seed, index)
    target = targets.targets[index % 4 == 0]
    lacking = target is targets.targets[1] and (b"shared_memory" in body or b'"labels"' in body)
    refusable = many > 0 or lacking
    start = time.thread_time()
    try:
        first, second = (targets.send(target, request, body, header) for _ in range(2))
        assert first == second, f"{first} became {second} when it was sent again"
        assert refusable or first[0] == "200", f"a valid request was refused: {first}"
        report.outcomes[first[0]] += 1
    except Exception as error:
        note(report, seed, index, body, header, error)
    seconds = time.thread_time() - start
    report.slowest = max(report.slowest, seconds)
    if seconds > MAX_REQUEST_SECONDS:
        note(report, seed, index, body, header, TimeoutError(f"took {seconds:.2f} s"))


def note(report: Report, seed: int, index: int, body: bytes, header: str | None, error: Exception) -> None:
    """Record a failure; the first of each kind is kept with its body."""
    report.outcomes[type(error).__name__] += 1
    frames = traceback.extract_tb(error.__traceback__)
    kind = f"{type(error).__name__} {frames[-1].name if frames else ''}"
    if kind in report.failures:
        return
    FAILURES_FOLDER.mkdir(parents=True, exist_ok=True)
    path = FAILURES_FOLDER / f"{seed}-{index}.body"
    path.write_bytes(body)
    path.with_suffix(".header").write_text(repr(header))
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:]))
    report.failures[kind] = (
        f"{type(error).__name__}: {str(error)[:300]} ({where}); --seed {seed} --first {index}, {path}"
    )


def read_memory() -> int:
    """Read the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_part(repository: Path, seed: int, first: int, count: int, traced_count: int) -> Report:
    """Send `count` requests from number `first` on, the first `traced` of them under coverage."""
    report, start = Report(count), time.monotonic()
    with open_targets(repository) as targets:
        with trace_branches(report, traced_count):
            for index in range(first, first + traced_count):
                send_twice(targets, seed, index, report)
        before = None
        for index in range(first + traced_count, first + count):
            if index >= first + traced_count + FUZZ_WARM_UP_SHARE * (count - traced_count):
                before = before or read_memory()
            send_twice(targets, seed, index, report)
        report.growth = read_memory() - before if before else 0
    report.seconds = time.monotonic() - start
    return report


@contextlib.contextmanager
def trace_branches(report: Report, traced_count: int) -> Iterator[None]:
    """Record in the report which branches are reached meanwhile."""
    if not traced_count:
        yield
        return
    tracer = coverage.Coverage(branch=True, include=TRACED_FILES, data_file=None, config_file=False)
    with tracer.collect():
        yield
    report.coverage, report.missing = read_coverage(tracer)


def read_coverage(tracer: coverage.Coverage) -> tuple[float, str]:
    """Return the percentage of branches that were reached, and those that were not."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file, contextlib.redirect_stdout(io.StringIO()):
        tracer.json_report(outfile=file.name)
        content = json.loads(Path(file.name).read_text())
    missing = [
        f"{Path(name).name} {' '.join(f'{a}->{b}' for a, b in each['missing_branches'])}"
        for name, each in content["files"].items()
        if each["missing_branches"]
    ]
    totals = content["totals"]
    return 100 * totals["covered_branches"] / totals["num_branches"], "; ".join(missing)


def run(count: int, seed: int = 0, first: int = 0, workers: int = 1, repository: Path | None = None) -> Report:
    """Send `count` requests in `workers` processes; coverage is that of the first, where it sends enough."""
    if repository is None:
        with tempfile.TemporaryDirectory() as folder:
            make_small_repository(Path(folder))
            return run(count, seed, first, workers, Path(folder))
    share = -(-count // workers)
    traced_count = min(share, MAX_TRACED_REQUESTS) if share >= MIN_TRACED_REQUESTS else 0
    parts = [(repository, seed, first + start, min(share, count - start)) for start in range(0, count, share)]
    if len(parts) == 1:
        return run_part(*parts[0], traced_count)
    start_time, whole = time.monotonic(), Report()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(run_part, *part, traced_count if part is parts[0] else 0) for part in parts]:
            whole.add(future.result())
    whole.seconds = time.monotonic() - start_time
    return whole


def show(report: Report) -> None:
    """Print the figures, then the failures."""
    print(f"bodies: {report.count} mutated valid requests, each twice, in {report.seconds:.0f} s")
    print("  outcomes: " + ", ".join(f"{name} {count}" for name, count in report.outcomes.most_common()))
    print(f"  slowest {report.slowest * 1000:.0f} ms of CPU, memory grew by {report.growth / 2**20:.1f} MiB")
    if report.coverage is not None:
        print(
            f"  {report.coverage:.1f} % of the branches of the v2 codecs and the wire; not: {report.missing or 'none'}"
        )
    for line in report.list_wrong():
        print(f"  WRONG {line}")
