"""Any number of ranks gives the same run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import free_port
from imgtrain_ranks import IMGTRAIN, Trainer, read_events, steps_of


def test_two_ranks_of_half_the_batch_have_the_samples_and_the_loss_curve_of_one(
    trainer: Trainer, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "train__max_steps": 20,
        "train__epochs": 5,
        "train__freeze_batch_norm": True,
        # Small enough that the rounding of another order of sums does not grow from step to step.
        "optimizer__lr": 0.005,
    }
    one = trainer.run(1, env={"IMGD_TRACE_SAMPLES": str(tmp_path / "one")}, **settings).losses()
    trainer.checkpoints /= "two"
    two = trainer.run(2, env={"IMGD_TRACE_SAMPLES": str(tmp_path / "two")}, **settings).losses()
    samples = steps_of(tmp_path / "one")
    assert samples == steps_of(tmp_path / "two")
    assert len(samples) == 20 and samples[0] != samples[5], "the steps of two epochs have the same order"
    assert sorted(one) == sorted(two) == list(range(1, 21))
    assert one[1] != one[20]
    for step, loss in one.items():
        assert two[step] == pytest.approx(loss, abs=1e-3), step


@pytest.mark.long
def test_gradients_that_travel_as_bf16_learn_nearly_the_same(trainer: Trainer) -> None:
    settings: dict[str, Any] = {
        "train__max_steps": 10,
        "train__freeze_batch_norm": True,
        "optimizer__lr": 0.005,
    }
    exact = trainer.run(2, **settings).losses()
    trainer.checkpoints /= "bf16"
    rounded = trainer.run(2, **settings, dist__gradient_compression="bf16", dist__bucket_mb=1).losses()
    assert rounded != exact
    for step, loss in exact.items():
        assert rounded[step] == pytest.approx(loss, abs=1e-2), step


@pytest.mark.long
def test_slices_may_be_uneven_and_even_empty(trainer: Trainer) -> None:
    """72 images in batches of 14: the last step of an epoch has 2, so that one of 3 ranks has none."""
    settings: dict[str, Any] = {
        "train__global_batch": 14,
        "train__max_steps": 8,
        "train__epochs": 2,
        "train__freeze_batch_norm": True,
        "optimizer__lr": 0.005,
    }
    one = trainer.run(1, **settings).losses()
    trainer.checkpoints /= "three"
    three = trainer.run(3, **settings, resources__nodes=1).losses()
    for step, loss in one.items():
        assert three[step] == pytest.approx(loss, abs=1e-3), step


def test_batch_norm_trains_with_an_empty_slice_too(trainer: Trainer) -> None:
    trainer.run(3, train__global_batch=14, train__epochs=1, schedule__warmup_epochs=0)


@pytest.mark.long
def test_synchronised_batch_norm_gives_three_ranks_the_statistics_of_one(trainer: Trainer) -> None:
    """With 14 images a step the last one of an epoch has 2, so that one of 3 ranks has none."""
    settings: dict[str, Any] = {
        "train__global_batch": 14,
        "train__epochs": 1,
        "schedule__warmup_epochs": 0,
        "data__image_size": 64,
        "optimizer__lr": 0.0005,
    }
    apart = trainer.run(3, **settings, train__max_steps=1).losses()[1]
    settings["train__sync_batch_norm"] = True
    trainer.checkpoints /= "one"
    one = trainer.run(1, **settings).losses()
    assert abs(apart - one[1]) > 0.005
    trainer.checkpoints /= "three"
    three = trainer.run(3, **settings).losses()
    # What rounding differs by grows from step to step, as it does with another number of threads.
    for step in (1, 2, 3):
        assert three[step] == pytest.approx(one[step], abs=2e-3), step
    assert len(three) == 6
    # Parts of a step are as many on each rank.
    trainer.checkpoints /= "parts"
    assert len(trainer.run(3, **settings, train__accumulate=3).losses()) == 6


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_validation_counts_every_image_once(ranks: int, trainer: Trainer, tmp_path: Path) -> None:
    """The same weights give the same figures on any number of ranks."""
    settings: dict[str, Any] = {
        "data__val": trainer.val,
        "train__max_steps": 5,
        "train__global_batch": 10,
    }
    first = trainer.run(1, **settings).events("epoch")[-1]
    (trainer.checkpoints / "g0" / "step5" / "validation.json").unlink()
    again = trainer.run(ranks, **settings).events("epoch")[-1]
    assert first.val_images == again.val_images == 27
    assert again.val_top1 == first.val_top1
    assert again.val_top5 == first.val_top5 == 1.0
    assert again.val_loss == pytest.approx(first.val_loss, abs=1e-5)


def test_each_rank_reports_and_only_rank_0_speaks_for_all(trainer: Trainer) -> None:
    run = trainer.run(2, train__max_steps=3, data__val=trainer.val)
    for rank in (0, 1):
        events = read_events(run.folder / f"events.{rank}")
        assert [e.sequence for e in events] == list(range(1, len(events) + 1))
        assert events[0].kind == "started" and events[0].world_size == 2
        assert events[-1].kind == "finished" and events[-1].step == 3
    assert run.losses() == {e.step: e.loss for e in run.events("step", rank=1)}
    assert run.events("checkpoint") and not run.events("checkpoint", rank=1)
    assert run.events("epoch") and not run.events("epoch", rank=1)


def test_rank_0_tells_how_fast_the_ranks_network_was(trainer: Trainer) -> None:
    run = trainer.run(2, train__max_steps=1)
    trial = run.events("started")[0].trial
    assert trial.bytes == 16 << 20
    assert trial.seconds > 0
    # Of two ranks each sends half of it twice.
    assert trial.bytes_per_second == pytest.approx(trial.bytes / trial.seconds)
    assert trial.nodes == 1
    assert "trial" not in run.events("started", rank=1)[0].values

    trainer.checkpoints /= "alone"
    alone = trainer.run(1, train__max_steps=1)
    assert "trial" not in alone.events("started")[0].values, "one rank has no network to try"


def test_ranks_that_see_other_data_are_refused(trainer: Trainer, tmp_path: Path) -> None:
    port = str(free_port())
    jobs = [trainer.job_file(), trainer.job_file(seed=4)]
    ranks = []
    for rank, job in enumerate(jobs):
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        ranks.append(
            subprocess.Popen(
                [IMGTRAIN, job],
                env=env,
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert "rank 1 sees other data or settings than rank 0" in outputs[0]
    assert "rank 1 does not see what rank 0 sees" in outputs[1]


def test_it_runs_under_torchrun(trainer: Trainer, tmp_path: Path) -> None:
    job = trainer.job_file(train__max_steps=3)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "--no-python",
            IMGTRAIN,
            job,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done: 3 steps" in done.stdout
    assert (tmp_path / "checkpoints" / "test" / "g0" / "step3" / "manifest.json").exists()
    assert len(list((tmp_path / "checkpoints" / "test" / "logs").glob("events.out.tfevents.*"))) == 1


def test_a_missing_rank_is_named(trainer: Trainer, tmp_path: Path) -> None:
    env = os.environ | {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "IMGD_JOIN_TIMEOUT_SECONDS": "1",
    }
    done = subprocess.run(
        [IMGTRAIN, trainer.job_file()],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 10
    who = f"rank 0 on {socket.gethostname()}: joining the gang: "
    where = f"127.0.0.1:{env['MASTER_PORT']} within 1 s"
    assert f"{who}of 3 ranks, 1, 2 did not come to {where}" in done.stderr, done.stderr


def test_rank_0_takes_the_listening_socket_that_it_inherits(trainer: Trainer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        run = trainer.start(2, master=master, train__max_steps=2, env={"IMGD_HOST_ADDRESS": "127.0.0.1"})
        assert run.wait() == [0, 0], run.output


def test_a_rank_of_an_older_start_cannot_join(trainer: Trainer, tmp_path: Path) -> None:
    job = trainer.job_file()
    env = os.environ | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "IMGD_JOIN_TIMEOUT_SECONDS": "3",
    }
    ranks = [
        subprocess.Popen(
            [IMGTRAIN, job],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env=env | {"RANK": str(rank), "IMGD_GENERATION": generation},
        )
        for rank, generation in ((0, "2"), (1, "1"))
    ]
    outputs = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [10, 10]
    assert "of 2 ranks, 1 did not come" in outputs[0]


def test_a_residual_network_with_one_by_one_kernels_reduces_without_warnings(
    trainer: Trainer,
) -> None:
    run = trainer.run(2, model__name="resnet50", train__max_steps=3, train__precision="bf16")
    for _, error in run.output:  # but for what a processor without bf16 is told
        assert [line for line in error.splitlines() if "computing in fp32" not in line] == []
