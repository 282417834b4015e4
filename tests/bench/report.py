"""What every benchmark shares: passes in turn, the table, and the JSON file that docs/benchmarks.md is made from."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("IMGD_BIN", ROOT / "build/release/bin"))


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor())  # fmt: skip
    memory = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    found = {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory / 2**20, 1), "system": platform.platform()}
    return found | ({"gpu": gpu.asked_of_gpu("name")} if gpu.there() else {})


@dataclass
class Case:
    """One thing that is measured on several subjects; the first subject is ours."""

    name: str
    unit: str
    better: str  # "higher" for rates, "lower" for times
    subjects: dict[str, Callable[[], float] | str]  # how to measure one pass, or why it can't be had
    goal: str = ""  # what ours is meant to reach, for the reader: a row has no verdict
    passes: int | None = None  # where it is not measure()'s number
    values: dict[str, list[float]] = field(default_factory=dict, init=False)


class Seen:
    """A run gives several figures; each is a case of its own. The first case runs, the others take what it saw."""

    def __init__(self, run: Callable[[], dict[str, float]]) -> None:
        self.run = run
        self.passes: list[dict[str, float]] = []

    def figure(self, name: str) -> Callable[[], float]:
        numbers = itertools.count()

        def once() -> float:
            number = next(numbers)
            if number == len(self.passes):
                self.passes.append(self.run())
            return self.passes[number][name]

        return once


def measure(cases: list[Case], passes: int = 3) -> list[dict[str, Any]]:
    """Each subject's median of `passes`, the subjects in turn, with the ratio of ours to each peer."""
    rows: list[dict[str, Any]] = []
    for case in cases:
        for number in range(case.passes or passes):
            for subject, once in case.subjects.items():
                if callable(once):
                    value = once()
                    case.values.setdefault(subject, []).append(value)
                    print(f"  {case.name}, pass {number + 1}: {subject} {value:.4g} {case.unit}", flush=True)
        ours = next(iter(case.subjects))
        for subject, once in case.subjects.items():
            row: dict[str, Any] = {"case": case.name, "subject": subject, "unit": case.unit}
            if callable(once):
                seen = case.values[subject]
                row |= {"value": statistics.median(seen), "min": min(seen), "max": max(seen)}
            else:
                row |= {"value": None, "why": once}
            rows.append(row)
        ours_row = next(r for r in rows if r["case"] == case.name and r["subject"] == ours)
        peers = [r for r in rows if r["case"] == case.name and r["subject"] != ours and r["value"] is not None]
        if case.goal:
            ours_row["goal"] = case.goal
        if ours_row["value"] is None:
            continue
        ours_row["ratio"] = {
            p["subject"]: round(
                ours_row["value"] / p["value"] if case.better == "higher" else p["value"] / ours_row["value"], 3
            )
            for p in peers
        }
    return rows


def chosen(cases: list[Case], words: str) -> list[Case]:
    """Those whose names have the words."""
    found = [case for case in cases if words in case.name]
    if not found:
        raise SystemExit(f"--only: no case has {words!r} in its name; there are:\n" +
                         "\n".join(f"  {case.name}" for case in cases))  # fmt: skip
    return found


def wait_until(what: str, there: Callable[[], bool], seconds: float) -> None:
    """Returns when it is there; fails with `what` when it does not come in time."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)


def number(value: float) -> str:
    """With four digits that count; thousands are told apart."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def beside(row: dict[str, Any]) -> str:
    """What was seen besides the figure: memory, sums of the pixels."""
    return ", ".join(f"{key} {value}" for key, value in row.get("beside", {}).items())


def finish(name: str, rows: list[dict[str, Any]], keep: bool = False) -> None:
    """Prints the table and writes build/bench/NAME.json. `keep`, where not all was measured: what that has of other
    cases, from this machine and day, stays in it; where it has none it is partial, and so are other cases' rows of
    docs/benchmarks.md kept, under their own day."""
    wide = max(12, *(len(row["subject"]) for row in rows))
    goals = max(len(row.get("goal", "")) for row in rows)
    goals = goals and max(goals, len("goal")) + 2  # no column where none has one
    print(f"\n{'case':34} {'subject':{wide}} {'median':>10} {'min':>10} {'max':>10}  unit      "
          f"{'goal'[:goals]:{goals}}ours is better by")  # fmt: skip
    for row in rows:
        if row["value"] is None:
            print(f"{row['case']:34} {row['subject']:{wide}} not measured: {row['why']}")
            continue
        ratio = ", ".join(f"{v:.2f}x {k}" for k, v in row.get("ratio", {}).items())
        figures = " ".join(f"{number(row[key]):>10}" for key in ("value", "min", "max"))
        print(
            f"{row['case']:34} {row['subject']:{wide}} {figures}  {row['unit']:9} {row.get('goal', ''):{goals}}{ratio}"
        )
        if row.get("beside"):
            print(f"{'':34} {'':{wide}} {beside(row)}")
    out = ROOT / "build/bench" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    now = {"machine": machine(), "date": datetime.date.today().isoformat()}
    before: dict[str, Any] = json.loads(out.read_text()) if keep and out.exists() else {}
    if {key: before.get(key) for key in now} != now:
        before = {"rows": [], "partial": keep}
    measured = {row["case"] for row in rows}
    document = now | {
        "partial": before.get("partial", False),
        "rows": [row for row in before["rows"] if row["case"] not in measured] + rows,
    }
    out.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten to {out.relative_to(ROOT)}")
