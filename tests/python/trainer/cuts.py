"""Ways to cut a run short."""

# ruff: noqa: ANN401  (a setting may have any type that YAML has)
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imgtrain_ranks import STOP_WITH_CHECKPOINT_COMMAND, Run, Trainer, send_command

# What is being written, in the order of writing, when such a cut comes.
PARTS = ["model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json", "lineage.json", "manifest.json"]


@dataclass
class Cuts:
    """Starts of one run that are cut, and the losses that they had; the run goes on with each."""

    trainer: Trainer
    ranks: int
    settings: dict[str, Any]
    losses: dict[int, float] = field(default_factory=dict)
    codes: list[int] = field(default_factory=list)

    def start(self, **changes: Any) -> Run:
        return self.trainer.start(self.ranks, **(self.settings | changes))

    def end(self, run: Run, code: int) -> None:
        """Of a start that was cut, and ended so: or came to its end before."""
        codes = run.wait()
        assert set(codes) in ({code}, {0}), (codes, run.output)
        self.codes.append(codes[0])
        self.losses |= run.losses()

    def by_command(self, step: int) -> None:
        run = self.start()
        run.wait_for_step(step)
        # It may have ended meanwhile.
        with contextlib.suppress(OSError, AssertionError):
            send_command(run.folder / "control.0", STOP_WITH_CHECKPOINT_COMMAND)
        self.end(run, 11)

    def by_sigkill(self, step: int) -> None:
        run = self.start()
        run.wait_for_step(step)
        for rank in run.ranks:
            rank.kill()
        self.end(run, -signal.SIGKILL)

    def by_sigterm(self, step: int) -> None:
        """To the last rank of a run by hand, where SIGTERM saves first."""
        logs = self.trainer.tmp_path / f"logs{len(self.codes)}"
        run = self.start(env={"IMGD_RUN_DIR": ""}, report__dir=logs, report__json_lines=True)
        for line in run.ranks[0].stdout or ():
            words = line.split()
            if words[:1] and words[0].isdigit() and int(words[0]) >= step:
                break
        run.ranks[-1].send_signal(signal.SIGTERM)
        self.end(run, 11)
        for line in (logs / "metrics.g0.jsonl").read_text().splitlines():
            values = json.loads(line)
            if "train/loss" in values:
                self.losses[values["step"]] = values["train/loss"]

    def in_mid_write(self, part: str) -> None:
        """By SIGKILL while the first checkpoint of this start is being written, by a disk that does not go on: the part
        is a pipe, which takes little that nobody reads, and at which even who opens it waits."""
        done = [int(path.parent.name.removeprefix("step")) for path in self.checkpoints("manifest.json")]
        every: int = self.settings["checkpoint__every_steps"]
        step = max(done, default=0) // every * every + every
        if step > self.settings["train__max_steps"]:
            return
        folder = self.trainer.checkpoints / "g0" / f"step{step}"
        shutil.rmtree(folder, ignore_errors=True)  # of a cut before
        run = self.start()
        # The manifest's name while it is written has the process in it.
        pipe = folder / (f"{part}.tmp.{run.ranks[0].pid}" if part == "manifest.json" else f"{part}.tmp")
        folder.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
        with contextlib.ExitStack() as reader:
            if part == PARTS[0]:
                reader.enter_context(pipe.open("rb"))  # once the other side has opened it to write
            else:
                run.wait_for((folder / PARTS[PARTS.index(part) - 1]).exists)
            for rank in run.ranks:
                rank.kill()
            self.end(run, -signal.SIGKILL)
        assert self.codes[-1] == -signal.SIGKILL
        assert not (folder / "manifest.json").exists()
        # As a disk would have been left.
        pipe.unlink()
        pipe.write_bytes(b"half of it")

    def checkpoints(self, name: str) -> list[Path]:
        return list(self.trainer.checkpoints.glob(f"g0/step*/{name}"))
