"""What needs CUDA's libraries is loaded where there is a GPU, and only there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from imgtrain_ranks import BIN, IMGTRAIN, Trainer

MODULE = BIN / "libimgtrain_cuda.so"


def test_the_program_itself_is_not_linked_to_cuda() -> None:
    linked = subprocess.run(["ldd", IMGTRAIN], check=True, capture_output=True, text=True).stdout
    assert "libtorch_cpu.so" in linked
    assert "libtorch_cuda.so" not in linked
    assert "libnccl" not in linked


@pytest.mark.skipif(not MODULE.exists(), reason="built without CUDA")
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_a_gpu_that_is_asked_for_is_looked_for_and_missed(trainer: Trainer) -> None:
    run = trainer.start(1, train__device="cuda")
    assert run.wait() == [2]
    assert "train.device: cuda is asked for, but this rank sees no GPU" in run.output[0][1]
    linked = subprocess.run(["ldd", "-r", MODULE], check=True, capture_output=True, text=True)
    assert "undefined symbol" not in linked.stdout + linked.stderr
