"""What TensorBoard itself reads of a run, and the JSON lines beside it."""

from __future__ import annotations

import json
import math
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from imgtrain_ranks import Event, Run, Trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TRAIN = {
    "train/loss": "loss",
    "train/top1": "top1",
    "train/learning_rate": "learning_rate",
    "train/gradient_norm": "gradient_norm",
    "train/images_per_second": "images_per_second",
    "train/rank_images_per_second": "rank_images_per_second",
    "train/input_wait": "input_wait_ratio",
}
# Each from a part of the report.
TIMES: dict[str, Callable[[Event], float]] = {
    "train/final_loss": lambda e: e.loss + e.penalty,
    "time/input": lambda e: e.times.input_seconds / e.times.steps,
    "time/forward": lambda e: e.times.forward_seconds / e.times.steps,
    "time/backward": lambda e: e.times.backward_seconds / e.times.steps,
    "time/communication": lambda e: e.times.communication_seconds / e.times.steps,
    "time/optimizer": lambda e: e.times.optimizer_seconds / e.times.steps,
    "time/all_reduce": lambda e: e.times.all_reduce_seconds,
    "time/all_reduce_hidden": lambda e: e.times.all_reduce_hidden_ratio,
    "ranks/own_least": lambda e: e.ranks.own_least_seconds,
    "ranks/own_mean": lambda e: e.ranks.own_mean_seconds,
    "ranks/own_most": lambda e: e.ranks.own_most_seconds,
    "ranks/wait_mean": lambda e: e.ranks.wait_mean_seconds,
    "ranks/slowest": lambda e: e.ranks.slowest_rank,
}
VAL = {"val/loss": "val_loss", "val/top1": "val_top1", "val/top5": "val_top5"}


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Of each curve the value at each step; a step that a curve has twice fails."""
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    board.Reload()
    curves = {}
    for tag in board.Tags()["scalars"]:
        points = board.Scalars(tag)
        curves[tag] = {point.step: point.value for point in points}
        assert len(curves[tag]) == len(points), (tag, points)
    return curves


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def curve_of(runs: list[Run], kind: str, field: str) -> dict[int, float]:
    """What the runs reported to the agent; of a step that was trained twice, the later."""
    return {e.step: float32(getattr(e, field)) for run in runs for e in run.events(kind)}


def lines(folder: Path, generation: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"metrics.g{generation}.jsonl").read_text().splitlines()]


def test_tensorboard_shows_what_was_reported(trainer: Trainer) -> None:
    run = trainer.run(2, data__val=trainer.val, train__epochs=2, report__json_lines=True)
    logs = trainer.checkpoints / "logs"
    (events,) = logs.glob("events.out.tfevents.*")
    assert events.name.endswith(f".{run.events('started')[0].pid}.0")
    curves = scalars(logs)
    assert set(curves) == set(TRAIN) | set(TIMES) | set(VAL)
    for tag, figure in TIMES.items():
        assert curves[tag] == {e.step: float32(figure(e)) for e in run.events("step")}, tag
    for tag, field in TRAIN.items():
        assert curves[tag] == curve_of([run], "step", field)
    for tag, field in VAL.items():
        assert curves[tag] == curve_of([run], "epoch", field)
    assert sorted(curves["train/loss"]) == list(range(1, 11))
    assert sorted(curves["val/top1"]) == [5, 10]

    assert {p.name for p in logs.iterdir()} == {
        events.name,
        "metrics.g0.jsonl",
        "classes.step5.json",
        "classes.step10.json",
    }
    for tag, curve in curves.items():
        assert {line["step"]: float32(line[tag]) for line in lines(logs) if tag in line} == curve
    assert {line["generation"] for line in lines(logs)} == {0}


def test_a_resumed_run_goes_on_with_the_curve(trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "data__val": trainer.val,
        "train__epochs": 3,
        "checkpoint__every_steps": 4,
        "checkpoint__every_epochs": 0,
        "report__dir": trainer.tmp_path / "logs",
    }
    cut = trainer.start(env={"IMGD_GENERATION": "1"}, **settings)
    cut.wait_for_step(6)
    cut.ranks[0].kill()
    cut.wait()
    resumed = trainer.run(env={"IMGD_GENERATION": "2"}, **settings)
    assert resumed.events("started")[0].start_step in (4, 8, 12)
    assert len(list((trainer.tmp_path / "logs").glob("events.*"))) == 2
    assert not (trainer.checkpoints / "logs").exists()
    curves = scalars(trainer.tmp_path / "logs")
    assert sorted(curves["train/loss"]) == list(range(1, 16))
    assert curves["train/loss"] == curve_of([cut, resumed], "step", "loss")
    assert curves["val/loss"] == curve_of([cut, resumed], "epoch", "val_loss")


def test_a_run_that_is_ended_has_written_what_it_reported(trainer: Trainer) -> None:
    run = trainer.start(train__epochs=1000, checkpoint__every_epochs=0, report__json_lines=True)
    run.wait_for_step(3)
    run.ranks[0].send_signal(signal.SIGTERM)
    assert run.wait() == [143]
    # The report in whose middle the signal came may be in one file and not yet in the other.
    reported = curve_of([run], "step", "loss")
    for written in (
        scalars(trainer.checkpoints / "logs")["train/loss"],
        {line["step"]: float32(line["train/loss"]) for line in lines(trainer.checkpoints / "logs")},
    ):
        assert len(reported) - 1 <= len(written)
        assert written.items() <= reported.items()


@pytest.mark.parametrize("tensorboard", [True, False])
def test_a_folder_that_cannot_be_made_is_said_once(tensorboard: bool, trainer: Trainer) -> None:
    (trainer.tmp_path / "file").write_text("in the way")
    run = trainer.run(
        train__max_steps=3,
        report__dir=trainer.tmp_path / "file" / "logs",
        report__tensorboard=tensorboard,
        report__json_lines=not tensorboard,
    )
    assert run.output[0][1].count("figures are not written") == 1
    assert str(trainer.tmp_path / "file") in run.output[0][1]


def test_without_figures_there_is_no_folder(trainer: Trainer) -> None:
    trainer.run(train__max_steps=2, report__tensorboard=False)
    assert not (trainer.checkpoints / "logs").exists()


def test_json_has_no_number_where_there_is_none(trainer: Trainer) -> None:
    run = trainer.start(train__max_steps=20, optimizer__lr=1e6, report__json_lines=True)
    assert run.wait() == [2]
    assert lines(trainer.checkpoints / "logs")[-1]["train/loss"] is None
    assert not math.isfinite(list(scalars(trainer.checkpoints / "logs")["train/loss"].values())[-1])
