"""Servers as processes of their own, each pinned to one core, with a log file."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from shortlist.errors import ServerError, ShortlistError

START_SECONDS = 60.0  # until a server must answer
STOP_SECONDS = 15.0  # until one that was sent SIGTERM is killed
POLL_SECONDS = 0.1
MIB = 1 << 20


def pick_cores() -> tuple[int, int]:
    """The core for servers and the one for clients; the same where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A server that runs while the context is open; its children end with it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        logs: Path,
        env: Mapping[str, str] | None = None,
        *,
        pauses: bool = True,
    ) -> None:
        """Start `command`, which listens on `port`, on the servers' core; it prints to `logs`/<name>.log.

        env: variables besides this process' own. pauses: whether it bears to be stopped for a while, see `pause`.
        """
        logs.mkdir(parents=True, exist_ok=True)
        self.pauses = pauses
        self.name, self.log, self.url = name, logs / f"{name}.log", f"http://127.0.0.1:{port}"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SHORTLIST_")}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(pick_cores()[0]), *command],
                stdout=output,
                stderr=output,
                env=clean | dict(env or {}),
                start_new_session=True,
            )

    def wait_ready(self, check: Callable[[], object], seconds: float = START_SECONDS) -> None:
        """Wait until `check` no longer raises ShortlistError; raises ServerError where it dies or takes too long."""
        until = time.monotonic() + seconds
        while True:
            try:
                check()
            except ShortlistError as error:
                if self.process.poll() is not None:
                    raise ServerError(f"{self.name} ended at its start: {self.last_log_line()}") from None
                if time.monotonic() > until:
                    raise ServerError(f"{self.name} did not answer within {seconds:g} s: {error}") from None
                time.sleep(POLL_SECONDS)
            else:
                return

    def last_log_line(self) -> str:
        """The last line that the server wrote, and the path of its log: for error messages."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1].strip()[:200] if lines else 'it said nothing'} ({self.log})"

    def memory_mib(self) -> float:
        """Resident memory in MiB; raises ServerError where the process is gone."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024 / MIB
        except (OSError, StopIteration):
            raise ServerError(f"{self.name} ended under load: {self.last_log_line()}") from None

    def pause(self) -> None:
        """Stop the process until `running`, so that it takes no time; one that does not bear it only stays idle."""
        if self.pauses:
            os.killpg(self.process.pid, signal.SIGSTOP)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Go on while the context is open."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            self.pause()

    def stop(self) -> None:
        """SIGTERM to the process and its children, then SIGKILL to what is left of them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
            os.killpg(self.process.pid, signal.SIGCONT)  # a paused process handles no signal
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def python_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *map(str, arguments)]
