"""A run that was cut goes on as if it had not been."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from imgtrain_ranks import (
    CHECKPOINT_COMMAND,
    STOP_COMMAND,
    STOP_WITH_CHECKPOINT_COMMAND,
    Trainer,
    send_command,
)
from safetensors.torch import load_file


def steps_in(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("g*/step*/manifest.json")}


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.long)])
def test_a_killed_run_goes_on_with_the_curve_of_one_that_was_not(precision: str, trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "train__max_steps": 12,
        "checkpoint__every_steps": 5,
        "checkpoint__every_epochs": 0,
        "train__precision": precision,
    }
    whole = trainer.run(**settings)
    kept = trainer.checkpoints
    trainer.checkpoints = kept.parent / "killed"
    cut = trainer.start(**settings)
    cut.wait_for(lambda: bool(cut.events("checkpoint")))
    cut.ranks[0].kill()
    cut.wait()
    rest = trainer.run(**settings)
    started = rest.events("started")[0]
    assert started.start_step in (5, 10)
    assert started.resumed_from.endswith(f"g0/step{started.start_step}")
    assert min(rest.losses()) == started.start_step + 1
    for step, loss in rest.losses().items():
        assert loss == pytest.approx(whole.losses()[step], abs=1e-6), step
    ours, theirs = (load_file(folder / "g0/step12/model.safetensors") for folder in (kept, trainer.checkpoints))
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-6), name


@pytest.mark.long
def test_a_run_resumes_at_another_world_size(trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "checkpoint__every_steps": 3,
        "train__freeze_batch_norm": True,
        "optimizer__lr": 0.02,
    }
    whole = trainer.run(train__max_steps=8, **settings).losses()
    trainer.checkpoints /= "other"
    trainer.run(train__max_steps=3, **settings)
    rest = trainer.run(2, train__max_steps=8, **settings)
    assert rest.events("started", rank=1)[0].start_step == 3
    for step, loss in rest.losses().items():
        assert loss == pytest.approx(whole[step], abs=1e-3), step


@pytest.mark.parametrize("damage", ["another bit", "cut short"])
def test_a_damaged_checkpoint_is_passed_over_with_a_word(damage: str, trainer: Trainer) -> None:
    settings: dict[str, Any] = {"checkpoint__every_steps": 2}
    trainer.run(train__max_steps=4, **settings)
    newest = trainer.checkpoints / "g0" / "step4" / "model.safetensors"
    content = bytearray(newest.read_bytes())
    if damage == "another bit":
        content[-1] ^= 1
    else:
        del content[len(content) // 2 :]
    newest.write_bytes(content)
    rest = trainer.run(train__max_steps=6, **settings)
    assert rest.events("started")[0].start_step == 2
    assert "g0/step4 is passed over" in rest.output[0][1]
    assert "model.safetensors" in rest.output[0][1]


def test_when_all_are_damaged_it_says_so_and_starts_nothing(trainer: Trainer) -> None:
    trainer.run(train__max_steps=2)
    (trainer.checkpoints / "g0" / "step2" / "state.json").write_text("{}")
    run = trainer.start(train__max_steps=4)
    assert run.wait() == [2]
    assert "move them away to start afresh" in run.output[0][1]


def test_only_accepted_checkpoints_and_the_last_generations_count(trainer: Trainer, tmp_path: Path) -> None:
    trainer.run(train__max_steps=2, env={"IMGD_GENERATION": "1"})
    shutil.copytree(trainer.checkpoints / "g1" / "step2", trainer.checkpoints / "g2" / "step9")
    resume = tmp_path / "resume.json"
    resume.write_text(
        json.dumps(
            {
                "accepted": [str(trainer.checkpoints / "g1" / "step2")],
                "last_generation": 1,
            }
        )
    )
    env = {"IMGD_GENERATION": "3", "IMGD_RESUME": str(resume)}
    run = trainer.run(train__max_steps=4, env=env)
    assert run.events("started")[0].resumed_from.endswith("g1/step2")
    assert run.events("checkpoint")[-1].path.endswith("g3/step4")
    assert run.events("checkpoint")[-1].generation == 3
    resume.write_text(json.dumps({"accepted": [], "last_generation": 0}))
    fresh = trainer.run(train__max_steps=1, env=env)
    assert fresh.events("started")[0].start_step == 0


@pytest.mark.long
def test_the_loss_scale_goes_on_where_it_was(trainer: Trainer) -> None:
    """fp16 has one whatever the processor computes in."""

    def scale_after(*steps: int) -> tuple[float, int]:
        trainer.checkpoints = trainer.tmp_path / f"after{steps}"
        for step in steps:
            trainer.run(train__precision="fp16", train__max_steps=step, train__global_batch=4, optimizer__lr=0.001)
        state = json.loads((trainer.checkpoints / f"g0/step{steps[-1]}/state.json").read_text())
        return state["loss_scale"], state["loss_scale_streak"]

    scale, streak = scale_after(5)
    assert scale < 65536 / 4 or streak > 2, "which two steps from a fresh one do not come to"
    assert scale_after(3, 5) == (scale, streak)


def test_another_model_is_refused(trainer: Trainer) -> None:
    trainer.run(train__max_steps=1)
    run = trainer.start(train__max_steps=2, model__name="resnet34")
    assert run.wait() == [2]
    assert "is of resnet18 with 4 classes, but the job trains resnet34" in run.output[0][1]


def test_changed_settings_are_mentioned(trainer: Trainer) -> None:
    trainer.run(train__max_steps=1)
    run = trainer.run(train__max_steps=2, optimizer__lr=0.01)
    assert "going on with the new ones" in run.output[0][1]


def test_only_the_newest_are_kept(trainer: Trainer) -> None:
    trainer.run(train__max_steps=6, checkpoint__every_steps=1, checkpoint__keep=2)
    assert steps_in(trainer.checkpoints) == {"step5", "step6"}


def test_a_run_that_is_done_stays_done(trainer: Trainer) -> None:
    trainer.run(train__max_steps=2, data__val=trainer.val)
    again = trainer.run(train__max_steps=2, data__val=trainer.val)
    assert not again.events("step") and not again.events("epoch") and not again.events("checkpoint")
    assert again.events("finished")[0].step == 2


def test_a_checkpoint_command_saves_and_the_run_goes_on(trainer: Trainer) -> None:
    run = trainer.start(2, train__epochs=100, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    assert send_command(run.folder / "control.1", CHECKPOINT_COMMAND) == b""
    run.wait_for(lambda: bool(run.events("checkpoint")))
    saved = run.events("checkpoint")[0].step
    run.wait_for_step(saved + 3)
    assert steps_in(trainer.checkpoints) == {f"step{saved}"}


def test_a_stop_command_to_one_rank_ends_all_after_the_same_step(
    trainer: Trainer,
) -> None:
    run = trainer.start(2, train__epochs=100, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    assert send_command(run.folder / "control.1", STOP_WITH_CHECKPOINT_COMMAND) == b""
    assert run.wait(30) == [11, 11]
    saved = run.events("checkpoint")[-1].step
    assert steps_in(trainer.checkpoints) == {f"step{saved}"}
    assert max(run.losses()) <= saved
    rest = trainer.run(train__epochs=100, train__max_steps=saved + 1)
    assert rest.events("started")[0].start_step == saved


def test_a_stop_command_may_do_without_a_checkpoint(trainer: Trainer) -> None:
    run = trainer.start(train__epochs=100, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    send_command(run.folder / "control.0", STOP_COMMAND)
    assert run.wait(30) == [11]
    assert steps_in(trainer.checkpoints) == set()


@pytest.mark.long
def test_a_stop_in_mid_validation_saves_and_the_next_start_validates(
    trainer: Trainer,
) -> None:
    settings: dict[str, Any] = {
        "model__name": "resnet50",
        "train__epochs": 2,
        "train__global_batch": 4,
        "data__val": trainer.val,
        "data__val_size": 224,
        "data__val_resize": 224,
        "train__max_steps": 2,
        "data__segments": 1,
    }
    run = trainer.start(2, **settings)
    # Nothing takes commands between the last step and validation.
    run.wait_for_step(2)
    send_command(run.folder / "control.0", STOP_WITH_CHECKPOINT_COMMAND)
    assert run.wait() == [11, 11]
    assert not run.events("epoch")
    rest = trainer.run(1, **settings)
    assert rest.events("started")[0].start_step == 2
    assert rest.events("epoch")[0].val_images == 27
    assert not rest.events("step")
