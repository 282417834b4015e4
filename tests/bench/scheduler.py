"""`./run bench scheduler`: how long one scheduling pass takes, on clusters of several sizes; and how much faster than
real time the simulator lives a day of 200 nodes. With --only WORDS the cases whose names have these words; the others'
figures in build/bench/scheduler.json stay."""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import subprocess
from typing import Any

from report import BIN, Case, Seen, chosen, finish, measure

SIZES = (100, 1_000, 10_000, 100_000)
GOALS = {10_000: "at most 20"}
NOTE = ("a whole pass as the daemon makes it (Reactor::Schedule: what is free and held, users' turns, quotas, the "
        "plan, victims, reasons, growth), after a job has ended and another come; a mixed cluster "
        "(tests/bench/busy_cluster.h); `plan alone` is MakePlan; beside it the time by n log2 n, "
        "n the nodes")  # fmt: skip


def scheduler_pass(size: int) -> dict[str, float]:
    """As many nodes, of 8 devices each, as jobs that wait, and half as many that run."""
    printed = subprocess.run([BIN / "scheduler_bench", str(size), str(size), str(size // 2)],
                             check=True, capture_output=True, text=True).stdout  # fmt: skip
    seen: dict[str, float] = json.loads(printed)
    return seen


def times_real_time() -> float:
    """A day of 200 nodes in the simulator."""
    printed = subprocess.run([BIN / "sim", "--nodes", "200"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) times real time", printed)
    if not found:
        raise AssertionError(f"sim printed {printed!r}")
    return float(found[1])


def name_of(size: int) -> str:
    return f"{size:,} nodes, {size:,} jobs queued, {size // 2:,} running"


def cases_of(size: int) -> tuple[list[Case], Seen]:
    seen = Seen(functools.partial(scheduler_pass, size))
    return [
        Case(name_of(size), "ms", "lower", {"imgd": seen.figure("milliseconds")}, GOALS.get(size, "")),
        Case(f"{name_of(size)}: plan alone", "ms", "lower", {"imgd": seen.figure("plan_milliseconds")}),
    ], seen  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench scheduler", description=__doc__)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    passes = {size: cases_of(size) for size in SIZES}
    day = Case("simulator, a day of 200 nodes: simulated time by real time", "x", "higher", {"imgd": times_real_time},
               "at least 10,000")  # fmt: skip
    wanted = chosen([case for cases, _ in passes.values() for case in cases] + [day], only)
    rows: list[dict[str, Any]] = []
    for size, (cases, seen) in passes.items():
        for row in measure([case for case in cases if case in wanted]):
            row["beside"] = {"ns by n log2 n": round(row["value"] * 1e6 / (size * math.log2(size)), 1)}
            row["note"] = NOTE
            if row["case"] == name_of(size):
                row["beside"] |= {"running": int(seen.passes[-1]["active"]), "queued": int(seen.passes[-1]["queued"])}
            rows.append(row)
    if day in wanted:
        rows += measure([day])
    finish("scheduler", rows, keep=bool(only))


if __name__ == "__main__":
    main()
