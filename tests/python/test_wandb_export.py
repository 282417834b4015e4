"""deploy/wandb_export.py, with a stand-in for the package wandb that writes down what it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]

WANDB = """
import json, os

class Run:
    def __init__(self, settings):
        self.told = [settings]
    def log(self, figures, step):
        self.told.append([step, figures])
    def finish(self):
        open(os.environ["TOLD"], "w").write(json.dumps(self.told))

def init(**settings):
    return Run(settings)
"""


def line(step: int, generation: int, **figures: float | None) -> str:
    renamed = {key.replace("__", "/"): value for key, value in figures.items()}
    return json.dumps({"time": 1.5, "generation": generation, "step": step, "epoch": step / 10} | renamed) + "\n"


def test_each_step_is_sent_once_with_all_its_figures(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(WANDB)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "events.out.tfevents.1").write_bytes(b"not mine")
    (logs / "metrics.g2.jsonl").write_text(line(10, 2, train__loss=5.0) + line(20, 2, train__loss=4.0))
    # A start after the second and before the eleventh; its last line is not whole yet.
    (logs / "metrics.g10.jsonl").write_text(
        line(20, 10, train__loss=None) + line(20, 10, val__top1=0.5) + line(30, 10, train__loss=3.0)[:20]
    )
    command = [sys.executable, REPO / "deploy" / "wandb_export.py", logs, "--project", "p", "--id", "r"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TOLD": str(tmp_path / "told")}
    subprocess.run(command, check=True, env=environment)
    assert json.loads((tmp_path / "told").read_text()) == [
        {"project": "p", "name": None, "id": "r", "resume": "allow"},
        [10, {"generation": 2, "epoch": 1.0, "train/loss": 5.0}],
        [20, {"generation": 10, "epoch": 2.0, "val/top1": 0.5}],
    ]
