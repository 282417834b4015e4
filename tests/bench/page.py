"""`./run bench page`: writes docs/benchmarks.md from the figures in build/bench/; what was not measured since stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from report import ROOT, beside

HEAD = """\
# Benchmarks

Written by `./run bench page` from what `./run bench train`, `control`, `data` and `scheduler` measured; don't edit.
Each figure is the median of several passes, ours and the peers' in turn in one run, with the least and the greatest
beside it. A ratio says how many times better ours is: for rates ours / peer, for times peer / ours. What could not be
measured says why.

No figures from GPUs yet: no machine with one was at hand. The CUDA and NCCL paths are built but unmeasured.
"""


def line(row: dict[str, Any], with_beside: bool) -> str:
    more = f" {beside(row)} |" if with_beside else ""
    if row["value"] is None:
        return f"| {row['case']} | {row['subject']} | not measured: {row['why']} | | |" + more
    ratio = ", ".join(f"{value:.2f} x {peer}" for peer, value in row.get("ratio", {}).items())
    return (f"| {row['case']} | {row['subject']} | {row['value']:.4g} {row['unit']} "
            f"| {row['min']:.4g} to {row['max']:.4g} | {ratio} |" + more)  # fmt: skip


def section(path: Path) -> str:
    found = json.loads(path.read_text())
    on = found["machine"]
    where = f"{on['cores']} cores of {on['cpu']}, {on['memory_gib']} GiB, {on['system']}"
    with_beside = any("beside" in row for row in found["rows"])
    rows = "\n".join(line(row, with_beside) for row in found["rows"])
    titles = ["case", "subject", "median", "least and greatest", "ratio"] + ["beside it"] * with_beside
    head = f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}"
    # Each subject's note once, whichever case it is in.
    notes = {row["subject"]: row["note"] for row in found["rows"] if row.get("note")}
    said = "".join(f"- {subject}: {note}\n" for subject, note in notes.items())
    return f"{found['date']}: {where}\n\n{head}\n{rows}\n" + (f"\n{said}" if said else "")


def main() -> None:
    page = ROOT / "docs/benchmarks.md"
    before = page.read_text().split("\n## ")[1:]
    sections = {title: text.strip() + "\n" for title, _, text in (part.partition("\n") for part in before)}
    for path in (ROOT / "build/bench").glob("*.json"):
        if not path.stem.endswith("-quick"):
            sections[path.stem] = section(path)
    parts = [f"## {title}\n\n{sections[title]}" for title in sorted(sections)]
    page.write_text("\n".join([HEAD, *parts]))
    print("written: docs/benchmarks.md")


if __name__ == "__main__":
    main()
