"""What `./run bench train --gpu` says of a GPU besides images per second: how long it stood idle, and its share of what
the chip could do. Pure, but for the questions to nvidia-smi."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Operations per second with dense matrices, without sparsity, by a part of the name that nvidia-smi shows: of bf16, or
# of fp16 where the chip has no bf16. From NVIDIA's data sheets. The first that fits counts.
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "A10G": 70e12,
    "L40S": 362e12,
    "L4": 121e12,
    "V100": 125e12,
    "T4": 65e12,
}

# Multiplications of a forward pass with one image of 224 pixels, as torchvision counts them (its GFLOPS).
MULTIPLICATIONS = {"resnet18": 1.814e9, "resnet50": 4.089e9}


def operations_per_image(model: str) -> float:
    """Of a training step: a multiplication and an addition each, and the backward pass is twice the forward one."""
    return MULTIPLICATIONS[model] * 2 * 3


def share_of_peak(name: str, model: str, images_per_second: float) -> float | None:
    """Nothing for a chip that PEAKS lacks."""
    peak = next((value for part, value in PEAKS.items() if part in name), None)
    return None if peak is None else images_per_second * operations_per_image(model) / peak


def busy(intervals: Iterable[tuple[float, float]]) -> float:
    """How long at least one of them (start, end) lasts."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def idle_share(trace: dict[str, Any]) -> float:
    """Of the time from the first kernel to the last of a Chrome trace of Kineto's, the share without any kernel."""
    kernels = [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    if not kernels:
        raise ValueError("the trace has no kernels of a GPU")
    span = max(end for _, end in kernels) - min(start for start, _ in kernels)
    return float(1 - busy(kernels) / span)


def there() -> bool:
    return Path("/dev/nvidia0").exists()


def asked_of_gpu(figure: str) -> str:
    """What nvidia-smi says of the first GPU, without units."""
    command = ["nvidia-smi", f"--query-gpu={figure}", "--format=csv,noheader,nounits", "--id=0"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def memory_mib() -> float:
    """In use on the first GPU, by whomever."""
    return float(asked_of_gpu("memory.used"))
