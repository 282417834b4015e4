#!/usr/bin/env python3
"""Sends the figures of a run to Weights & Biases, from the JSON lines that the job writes (report.json_lines).

    deploy/wandb_export.py FOLDER --project PROJECT [--name NAME] [--id ID] [--follow]

FOLDER is the job's folder of figures. All starts of the job go into one W&B run, by step; of a step that was trained
again the later start counts. With WANDB_MODE=offline it writes W&B's own offline files for `wandb sync`. With --follow
it goes on as the job does, until it is interrupted, and leaves out steps that are trained again.

It needs the package `wandb`: tested against a stand-in for it, and tried out with wandb 0.31.0 in offline mode, whose
file had every step and figure; never against the service.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb

PERIOD_SECONDS = 2.0


def files_of(folder: Path) -> list[Path]:
    """The JSON lines of each start, the oldest first."""
    found = [(int(m[1]), p) for p in folder.iterdir() if (m := re.fullmatch(r"metrics\.g(\d+)\.jsonl", p.name))]
    return [path for _, path in sorted(found)]


def whole_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The lines that are complete."""
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        yield json.loads(line)


def stored(folder: Path) -> list[dict[str, Any]]:
    """All there is, by step: of a step that several starts have, the last one's."""
    by_step: dict[int, dict[str, Any]] = {}
    for path in files_of(folder):
        begun: set[int] = set()
        for line in whole_lines(path.read_bytes()):
            step = line["step"]
            # Training and validation have a line each for the same step.
            by_step[step] = by_step[step] | line if step in begun else line
            begun.add(step)
    return [by_step[step] for step in sorted(by_step)]


def followed(folder: Path) -> Iterator[dict[str, Any]]:
    """Lines as they come, from the first on."""
    read: dict[Path, int] = {}
    while True:
        for path in files_of(folder):
            data = path.read_bytes()[read.get(path, 0) :]
            read[path] = read.get(path, 0) + data.rfind(b"\n") + 1
            yield from whole_lines(data)
        time.sleep(PERIOD_SECONDS)


def figures_of(line: dict[str, Any]) -> dict[str, float]:
    """What W&B shows as curves; what is no number has no point."""
    return {key: value for key, value in line.items() if key not in ("time", "step") and value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--project", required=True)
    parser.add_argument("--name")
    parser.add_argument("--id", help="of the W&B run, to go on with one that was sent before")
    parser.add_argument("--follow", action="store_true")
    arguments = parser.parse_args()
    run = wandb.init(project=arguments.project, name=arguments.name, id=arguments.id, resume="allow")
    try:
        for line in followed(arguments.folder) if arguments.follow else stored(arguments.folder):
            # W&B itself leaves out what comes for an earlier step than the last.
            run.log(figures_of(line), step=line["step"])
    except KeyboardInterrupt:
        pass
    finally:
        run.finish()


if __name__ == "__main__":
    main()
