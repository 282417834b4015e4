"""A run that goes on with another number of ranks, by the rule that its job file states."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from imgtrain_ranks import Trainer


def samples_by_step(trace: Path) -> dict[int, list[int]]:
    """The samples of each step over all ranks, from lines of step, rank and samples."""
    steps: dict[int, list[int]] = {}
    for line in trace.read_text().splitlines():
        step, _, *samples = (int(word) for word in line.split())
        steps.setdefault(step, []).extend(samples)
    return steps


@pytest.mark.long
def test_linear_scaling_follows_the_ranks_at_the_next_epoch(trainer: Trainer) -> None:
    """72 images: 9 steps of 8 for one rank, in two epochs, and 3 steps of 24 for three ranks in the last one."""
    trace = trainer.tmp_path / "trace"
    settings: dict[str, Any] = {
        "elastic__rule": "linear_scaling",
        "elastic__ranks": 2,
        "train__epochs": 3,
        "schedule__kind": "polynomial",
        "schedule__power": 0,  # always the full rate
        "schedule__warmup_epochs": 0,
        "optimizer__lr": 0.02,
        "checkpoint__every_steps": 1,
        "env": {"IMGD_TRACE_SAMPLES": str(trace)},
    }
    alone = trainer.run(1, train__max_steps=12, **settings)
    assert alone.events("started")[0].steps_per_epoch == 9
    rest = trainer.run(3, **settings)
    assert rest.events("started")[0].start_step == 12
    assert rest.events("finished")[0].step == 21
    rates = {e.step: e.learning_rate for e in alone.events("step") + rest.events("step")}
    assert rates == pytest.approx({step: 0.01 if step <= 18 else 0.03 for step in range(1, 22)})

    steps = samples_by_step(trace)
    assert [len(steps[step]) for step in sorted(steps)] == [8] * 18 + [24] * 3
    for first, end in ((0, 9), (9, 18), (18, 21)):
        epoch = Counter(sample for step in range(first, end) for sample in steps[step])
        assert epoch == Counter(range(72)), f"steps {first} to {end}"
    state = json.loads((trainer.checkpoints / "g0/step21/state.json").read_text())
    assert state["resizes"] == [{"epoch": 0, "ranks": 1}, {"epoch": 2, "ranks": 3}]


@pytest.mark.long
def test_a_resized_run_that_is_cut_goes_on_as_one_that_was_not(trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "elastic__rule": "linear_scaling",
        "elastic__ranks": 2,
        "train__epochs": 3,
        "train__max_steps": 20,
        "checkpoint__every_steps": 1,
        "checkpoint__keep": 30,
    }
    trainer.run(1, **settings | {"train__max_steps": 4})
    whole = trainer.run(2, **settings).losses()
    for folder in (trainer.checkpoints / "g0").iterdir():
        if folder.name.startswith("step") and int(folder.name[4:]) > 11:
            (folder / "manifest.json").unlink()
    rest = trainer.run(2, **settings)
    assert rest.events("started")[0].start_step == 11
    for step, loss in rest.losses().items():
        assert loss == pytest.approx(whole[step], abs=1e-6), step


@pytest.mark.long
def test_keep_global_batch_computes_what_more_ranks_did_in_parts(trainer: Trainer) -> None:
    trace = trainer.tmp_path / "trace"
    settings: dict[str, Any] = {
        "elastic__rule": "keep_global_batch",
        "elastic__ranks": 4,
        "train__freeze_batch_norm": True,
        "optimizer__lr": 0.02,
        "checkpoint__every_steps": 3,
        "env": {"IMGD_TRACE_SAMPLES": str(trace)},
    }
    whole = trainer.run(2, train__max_steps=8, **settings).losses()
    expected = samples_by_step(trace)
    trace.unlink()
    trainer.checkpoints /= "other"
    trainer.run(2, train__max_steps=3, **settings)
    rest = trainer.run(3, train__max_steps=8, **settings)
    assert rest.events("started")[0].start_step == 3
    assert {step: sorted(samples) for step, samples in samples_by_step(trace).items()} == {
        step: sorted(samples) for step, samples in expected.items()
    }
    for step, loss in rest.losses().items():
        assert loss == pytest.approx(whole[step], abs=1e-3), step
