"""Memory that a process and its children hold, watched from outside while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PERIOD_SECONDS = 0.25


def children_of(pid: int, proc: Path = Path("/proc")) -> list[int]:
    found = []
    for task in (proc / str(pid) / "task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue  # it has just ended
    return found


def pss_mib(pid: int, proc: Path = Path("/proc")) -> float:
    """Of the process and all below it. What several share counts once in all: a loader's workers share a lot."""
    total = 0.0
    try:
        rollup = (proc / str(pid) / "smaps_rollup").read_text()
        total = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):
        pass  # it has just ended
    return total + sum(pss_mib(child, proc) for child in children_of(pid, proc))


class Peak:
    """The greatest value of something that is looked at a few times a second."""

    def __init__(self, look: Callable[[], float]) -> None:
        self.look, self.value = look, 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        while True:
            self.value = max(self.value, self.look())
            if self.stop.wait(PERIOD_SECONDS):
                return

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop.set()
        self.thread.join()
