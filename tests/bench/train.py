"""`./run bench train`: imgtrain beside plain PyTorch in Python, end to end from JPEG files, on the same cores."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from report import BIN, ROOT, Case, finish, measure

SIZE, BATCH, EPOCHS = 64, 64, 4
CORES = os.cpu_count() or 1

JOB = """\
name: bench
model: {{name: resnet18}}
data: {{train: {data}, image_size: {size}, min_scale: 0.5, workers: {cores}}}
train: {{epochs: {epochs}, global_batch: {batch}, precision: {precision}, threads: {cores}, log_every_steps: 1}}
optimizer: {{lr: 0.05}}
checkpoint: {{every_epochs: 0}}
"""


@functools.cache
def trainer_event() -> type:
    """TrainerEvent's class, made from proto/ by protoc."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I", ROOT / "proto", f"--descriptor_set_out={out.name}", "imgd/v1/trainer.proto"],
                       check=True)  # fmt: skip
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("imgd.v1.TrainerEvent"))


def ours(data: Path, precision: str) -> dict[str, float]:
    """One run of imgtrain: images per second after the first epoch, and seconds to the end of the first step."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB.format(data=data, size=SIZE, cores=CORES, epochs=EPOCHS, batch=BATCH, precision=precision))
        env = os.environ | {"IMGD_RUN_DIR": folder, "IMGD_CHECKPOINT_DIR": f"{folder}/checkpoints"}
        begun = time.time()
        subprocess.run([BIN / "imgtrain", job], check=True, env=env, capture_output=True)
        raw, at, steps = (Path(folder) / "events.0").read_bytes(), 0, []
        while at < len(raw):
            length = int.from_bytes(raw[at : at + 4], "little")
            event = trainer_event().FromString(raw[at + 4 : at + 4 + length])  # type: ignore[attr-defined]
            at += 4 + length
            if event.HasField("step"):
                steps.append((event.step.step, event.step.epoch, event.time_us / 1e6))
        first = next(s for s in steps if s[1] >= 1)
        rate = (steps[-1][0] - first[0]) * BATCH / (steps[-1][2] - first[2])
        return {"images_per_second": rate, "first_step_seconds": steps[0][2] - begun}


def peer(data: Path, precision: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, Path(__file__).with_name("peer_train.py"), data, str(SIZE), str(BATCH),
                           str(CORES), str(CORES), str(EPOCHS), precision],
                          check=True, capture_output=True, text=True)  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def why_not(precision: str) -> str:
    """Why a precision can't be measured here; empty where it can."""
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    if precision == "fp32" or "avx512f" in flags or "amx_bf16" in flags:
        return ""
    return "the CPU has neither AVX-512 nor AMX: imgtrain computes in fp32 instead, PyTorch emulates bf16"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shapes = Path(folder) / "shapes"
        # 1,280 images: whole batches, so that both sides count the same.
        subprocess.run([BIN / "imgcli", "dataset", "synth", "--classes", "10", "--per-class", "128",
                        "--val-per-class", "1", "--size", "500x375", shapes],
                       check=True, capture_output=True)  # fmt: skip
        data = shapes / "train"
        cases = []
        for precision in ("fp32", "bf16"):
            results: dict[tuple[str, str], list[float]] = {}

            def once(subject: str, figure: str, precision: str = precision, kept=results) -> float:  # noqa: ANN001
                # One run gives both figures; the second case takes what the first one's passes left.
                if figure == "images_per_second":
                    result = (ours if subject == "imgtrain" else peer)(data, precision)
                    kept.setdefault((subject, "first_step_seconds"), []).append(result["first_step_seconds"])
                    return result[figure]
                return kept[subject, figure].pop(0)

            for figure, unit, better in (
                ("images_per_second", "images/s", "higher"),
                ("first_step_seconds", "s", "lower"),
            ):
                subjects: dict[str, Callable[[], float] | str] = {
                    s: why_not(precision) or functools.partial(once, s, figure) for s in ("imgtrain", "pytorch")
                }
                cases.append(Case(f"rn18-64px-b64-{precision} {figure.replace('_', ' ')}", unit, better, subjects))
        finish("train", measure(cases))


if __name__ == "__main__":
    main()
