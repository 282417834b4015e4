"""`./run bench scheduler`: how long one scheduling pass takes, on clusters of several sizes."""

from __future__ import annotations

import functools
import json
import subprocess

from report import BIN, Case, finish, measure

SIZES = (100, 1_000, 10_000, 100_000)


def milliseconds(size: int) -> float:
    """As many nodes, of 8 devices each, as jobs that wait, and half as many that run."""
    printed = subprocess.run([BIN / "scheduler_bench", str(size), str(size), str(size // 2)],
                             check=True, capture_output=True, text=True).stdout  # fmt: skip
    took: float = json.loads(printed)["milliseconds"]
    return took


def main() -> None:
    finish("scheduler", measure([
        Case(f"{size:,} nodes, {size:,} jobs queued, {size // 2:,} running", "ms", "lower",
             {"imgd": functools.partial(milliseconds, size)})
        for size in SIZES
    ]))  # fmt: skip


if __name__ == "__main__":
    main()
