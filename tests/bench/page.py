"""`./run bench page`: writes docs/benchmarks.md from the figures in build/bench/."""

from __future__ import annotations

import json
from typing import Any

from report import ROOT

HEAD = """\
# Benchmarks

Written by `./run bench page` from what `./run bench train` and `./run bench control` measured; don't edit. Each figure
is the median of several passes, ours and the peers' in turn in one run, with the least and the greatest beside it. A
ratio says how many times better ours is: for rates ours / peer, for times peer / ours. What could not be measured says
why.

No figures from GPUs yet: no machine with one was at hand. The CUDA and NCCL paths are built but unmeasured.
"""


def line(row: dict[str, Any]) -> str:
    if row["value"] is None:
        return f"| {row['case']} | {row['subject']} | not measured: {row['why']} | | |"
    ratio = ", ".join(f"{value:.2f} x {peer}" for peer, value in row.get("ratio", {}).items())
    return (f"| {row['case']} | {row['subject']} | {row['value']:.4g} {row['unit']} "
            f"| {row['min']:.4g} to {row['max']:.4g} | {ratio} |")  # fmt: skip


def main() -> None:
    parts = [HEAD]
    for path in sorted((ROOT / "build/bench").glob("*.json")):
        found = json.loads(path.read_text())
        on = found["machine"]
        where = f"{on['cores']} cores of {on['cpu']}, {on['memory_gib']} GiB, {on['system']}"
        rows = "\n".join(line(row) for row in found["rows"])
        head = "| case | subject | median | least and greatest | ratio |\n| --- | --- | --- | --- | --- |"
        parts.append(f"## {path.stem}\n\n{found['date']}: {where}\n\n{head}\n{rows}\n")
    (ROOT / "docs/benchmarks.md").write_text("\n".join(parts))
    print("written: docs/benchmarks.md")


if __name__ == "__main__":
    main()
