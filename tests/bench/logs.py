"""A log of 1 GB in imgd's own form, and how long its API takes to look through it, beside grep."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from report import Case

LINE = "{number}\t{time}\tO\t[info] rank=0 step={number} epoch={epoch:.2f} loss=2.3841 lr=0.8123 images/s=2531\n"
NOWHERE = "CUDA out of memory"


def write_log(state_dir: Path, job: int, size: int) -> int:
    """The log of the job's rank 0; imgd must not run. Returns how many lines it has."""
    with contextlib.closing(sqlite3.connect(state_dir / "state.db")) as state:
        (generation,) = state.execute("SELECT generation FROM jobs WHERE id = ?", (job,)).fetchone()
    path = state_dir / "logs" / str(job) / str(generation) / "0.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    number = written = 0
    with path.open("w") as log:
        while written < size:
            text = "".join(
                LINE.format(number=n, time=1_764_000_000_000_000 + n * 20_000, epoch=n / 5004)
                for n in range(number + 1, number + 10_001)
            )
            number += 10_000
            written += log.write(text)
    with contextlib.closing(sqlite3.connect(state_dir / "metrics.db")) as metrics, metrics:
        row = (job, generation, number, written)
        metrics.execute("INSERT OR REPLACE INTO log_streams VALUES (?, ?, 0, ?, 0, ?)", row)
    return number


class LogCalls:
    """Times of calls, in milliseconds."""

    def __init__(self, port: int, job: str, lines: int, path: Path) -> None:
        self.port, self.job, self.lines, self.path = port, job, lines, path

    def ask(self, query: str, found: int) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        begin = time.monotonic()
        connection.request("GET", f"/api/v1/jobs/{self.job}/logs?rank=0&{query}")
        answer = json.loads(connection.getresponse().read())
        took = (time.monotonic() - begin) * 1e3
        if len(answer.get("lines", [])) != found:
            raise SystemExit(f"{query}: {str(answer)[:300]}")
        return took

    def grep(self) -> float:
        begin = time.monotonic()
        subprocess.run(["grep", "-iF", NOWHERE, self.path], check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
        return (time.monotonic() - begin) * 1e3

    def cases(self, size: str) -> Iterator[Case]:
        nowhere = NOWHERE.lower().replace(" ", "+")
        for what, query, found in (
            ("a text that is nowhere in it", f"contains={nowhere}", 0),
            ("errors, of which it has none", "level=LOG_LEVEL_ERROR", 0),
            ("the last 5,000 lines", "tail=5000", 5000),
            ("1,000 lines around one in the middle", f"tail=1000&before_line={self.lines // 2}", 1000),
        ):
            subjects: dict[str, Callable[[], float] | str] = {"imgd": functools.partial(self.ask, query, found)}
            if "nowhere" in what:
                subjects["grep"] = self.grep
            yield Case(f"a log of {size}: {what}", "ms", "lower", subjects, "at most 1,000")
