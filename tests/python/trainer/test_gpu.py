"""What a GPU alone can show: a rank computes on it as on the CPU, in every precision, recorded or not, and by NCCL.

Speed, the share of the time without a kernel and the share of the chip's peak are `./run bench train --gpu`'s.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from imgtrain_ranks import BIN, Run, Trainer

GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
SEEN = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(GPUS))))}
pytestmark = [
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no GPU here: /dev/nvidiactl is not there"),
    pytest.mark.skipif(not (BIN / "libimgtrain_cuda.so").exists(), reason="built without CUDA"),
]
SETTINGS: dict[str, Any] = {
    "train__max_steps": 9,
    "train__global_batch": 24,  # three whole steps an epoch
    "train__freeze_batch_norm": True,
    "checkpoint__every_epochs": 0,
    "optimizer__lr": 0.02,
}


def train(trainer: Trainer, device: str, ranks: int = 1, **settings: Any) -> Run:
    trainer.checkpoints = trainer.tmp_path / f"checkpoints{len(trainer.started)}"
    return trainer.run(ranks, env=SEEN, train__device=device, **(SETTINGS | settings))


def check_near(run: Run, other: Run, most: float) -> None:
    """Sums are rounded otherwise, and each step makes more of it: after three steps it may be ten times so much."""
    theirs = other.losses()
    assert run.losses() == {
        step: pytest.approx(loss, abs=most if step <= 3 else 10 * most) for step, loss in theirs.items()
    }


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-3), ("tf32", 0.01), ("bf16", 0.02), ("fp16", 0.02)])
def test_a_gpu_learns_what_a_cpu_learns(precision: str, most: float, trainer: Trainer) -> None:
    run = train(trainer, "cuda", train__precision=precision)
    assert run.events("started")[0].device.startswith("cuda:0 ")
    assert "computing in fp32" not in run.output[0][1]
    assert "NUMA node" in run.output[0][1], "bound, or why not"
    check_near(run, train(trainer, "cpu", train__precision="fp32"), most)


def test_fp16_has_a_loss_scale_that_goes_on_after_a_resume(trainer: Trainer) -> None:
    whole = train(trainer, "cuda", train__precision="fp16")
    train(trainer, "cuda", train__precision="fp16", train__max_steps=4)
    rest = trainer.run(1, env=SEEN, train__device="cuda", **(SETTINGS | {"train__precision": "fp16"}))
    assert rest.events("started")[0].start_step == 4
    losses = whole.losses()
    assert rest.losses() == {step: pytest.approx(losses[step], abs=0.02) for step in range(5, 10)}


def test_steps_that_are_recorded_learn_what_others_learn(trainer: Trainer) -> None:
    recorded = train(trainer, "cuda", train__precision="fp32", train__cuda_graph=True)
    assert "train.cuda_graph: steps of 24 images are recorded" in recorded.output[0][1]
    check_near(recorded, train(trainer, "cuda", train__precision="fp32"), 1e-3)


@pytest.mark.skipif(GPUS < 2, reason="this takes two GPUs")
@pytest.mark.parametrize("compression", ["none", "bf16"])
def test_two_ranks_learn_by_nccl_what_one_learns(compression: str, trainer: Trainer) -> None:
    both = train(trainer, "cuda", 2, train__precision="fp32", dist__gradient_compression=compression)
    assert [both.events("started", rank)[0].device[:7] for rank in range(2)] == ["cuda:0 ", "cuda:1 "]
    assert all(event.times.all_reduce_seconds > 0 for event in both.events("step"))
    check_near(both, train(trainer, "cuda", train__precision="fp32"), 1e-3 if compression == "none" else 0.02)


@pytest.mark.skipif(GPUS < 2, reason="this takes two GPUs")
def test_a_rank_whose_peer_on_another_gpu_dies_says_that_a_collective_broke(trainer: Trainer) -> None:
    run = trainer.start(2, env=SEEN, train__device="cuda", train__epochs=1000, checkpoint__every_epochs=0)
    run.wait_for_step(2)
    run.ranks[1].kill()
    assert run.wait(60) == [10, -9]
    assert run.events("failed")[0].collective_broken
