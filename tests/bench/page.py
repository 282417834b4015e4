"""`./run bench page`: writes docs/benchmarks.md from the figures in build/bench/; what was not measured since stays,
under its date."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from report import ROOT, beside, number

HEAD = """\
# Benchmarks

Written by `./run bench page` from what `./run bench train`, `control`, `data`, `scheduler` and `web` measured; don't
edit. Each figure is the median of several passes, ours and the peers' in turn in one run, with the least and the
greatest beside it. A ratio says how many times better ours is: for rates ours / peer, for times peer / ours. What could
not be measured says why.
"""

WITHOUT_GPU = """
No figures from GPUs yet: no machine with one was at hand. The CUDA and NCCL paths are built but unmeasured.
"""


def head(sections: Iterable[str]) -> str:
    """What stands above these sections."""
    return HEAD if any(title.endswith("-gpu") for title in sections) else HEAD + WITHOUT_GPU


def line(row: dict[str, Any], with_goal: bool, with_beside: bool) -> str:
    more = (f" {row.get('goal', '')} |" if with_goal else "") + (f" {beside(row)} |" if with_beside else "")
    if row["value"] is None:
        return f"| {row['case']} | {row['subject']} | not measured: {row['why']} | | |" + more
    ratio = ", ".join(f"{value:.2f} x {peer}" for peer, value in row.get("ratio", {}).items())
    spread = f"{number(row['min'])} to {number(row['max'])}" if "min" in row else ""
    return f"| {row['case']} | {row['subject']} | {number(row['value'])} {row['unit']} | {spread} | {ratio} |" + more


def section(found: dict[str, Any]) -> str:
    on = found["machine"]
    where = f"{on['cores']} cores of {on['cpu']}, {on['memory_gib']} GiB, {on['system']}"
    where += f", {on['gpu']}" if "gpu" in on else ""
    with_goal, with_beside = (any(key in row for row in found["rows"]) for key in ("goal", "beside"))
    rows = "\n".join(line(row, with_goal, with_beside) for row in found["rows"])
    titles = ["case", "subject", "median", "least and greatest", "ratio"]
    titles += ["goal"] * with_goal + ["beside it"] * with_beside
    top = f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}"
    # Each subject's note once, whichever case it is in.
    notes = dict.fromkeys((row["subject"], row["note"]) for row in found["rows"] if row.get("note"))
    said = "".join(f"- {subject}: {note}\n" for subject, note in notes)
    return f"{found['date']}: {where}\n\n{top}\n{rows}\n" + (f"\n{said}" if said else "")


def kept(before: str, measured: set[str]) -> str:
    """The part of a section that stands: its tables, each under its own date, without the cases measured anew."""
    blocks = []
    for block in re.split(r"\n(?=\d{4}-\d\d-\d\d: )", before.strip()):
        lines = block.splitlines()
        rows = [i for i, text in enumerate(lines) if text.startswith("| ") and lines[i - 1].startswith("|")]
        rows = rows[1:]  # without the line under the titles
        gone = {i for i in rows if lines[i].split(" | ")[0].removeprefix("| ") in measured}
        if len(gone) < len(rows):
            blocks.append("\n".join(text for i, text in enumerate(lines) if i not in gone) + "\n")
    return "\n".join(blocks)


def main() -> None:
    page = ROOT / "docs/benchmarks.md"
    before = page.read_text().split("\n## ")[1:]
    sections = {title: text.strip() + "\n" for title, _, text in (part.partition("\n") for part in before)}
    for path in (ROOT / "build/bench").glob("*.json"):
        if not path.stem.endswith("-quick"):
            found = json.loads(path.read_text())
            measured = {row["case"] for row in found["rows"]}
            still = kept(sections.get(path.stem, ""), measured) if found.get("partial") else ""
            sections[path.stem] = section(found) + (f"\n{still}" if still else "")
    parts = [f"## {title}\n\n{sections[title]}" for title in sorted(sections)]
    page.write_text("\n".join([head(sections), *parts]))
    print("written: docs/benchmarks.md")


if __name__ == "__main__":
    main()
