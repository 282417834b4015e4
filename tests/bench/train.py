"""`./run bench train`: imgtrain beside plain PyTorch in Python: computing alone, and end to end from JPEG files.

With --gpu on the first GPU alone, as train-gpu.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from report import BIN, ROOT, Case, finish, measure

CORES = os.cpu_count() or 1
PEER = Path(__file__).with_name("peer_train.py")
Figures = dict[str, float]

JOB = """\
name: bench
model: {{name: {model}}}
data: {{train: {data}, image_size: {size}, min_scale: 0.5, workers: {cores}}}
train: {{epochs: 90, max_steps: {steps}, global_batch: {batch}, precision: {precision}, threads: {cores},
  log_every_steps: 1}}
optimizer: {{lr: 0.05}}
checkpoint: {{every_epochs: 0, every_steps: {every_steps}}}
"""


@dataclass(frozen=True)
class Work:
    """What both sides do."""

    name: str
    model: str
    size: int
    batch: int  # of each rank
    steps: int  # that are timed
    warm_up: int
    precision: str = "fp32"
    device: str = "cpu"


SMALL = Work("rn18-64px-b64-fp32", "resnet18", 64, 64, steps=60, warm_up=20)
SMALL_BF16 = Work("rn18-64px-b64-bf16", "resnet18", 64, 64, steps=60, warm_up=20, precision="bf16")
LARGE = Work("rn50-224px-b16-fp32", "resnet50", 224, 16, steps=5, warm_up=1)
ON_GPU = Work("rn50-224px-b256-bf16", "resnet50", 224, 256, steps=60, warm_up=20, precision="bf16", device="cuda")
LONG = Work("rn50-96px-b16-fp32", "resnet50", 96, 16, steps=100, warm_up=50)


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


def run(command: list[str | Path], env: dict[str, str]) -> tuple[str, float]:
    """What it printed, and the most memory that its own process held, MiB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, env=os.environ | env, stdout=out, stderr=subprocess.PIPE, text=True)
        assert process.stderr
        words = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{command[0]} failed:\n{words}")
        out.seek(0)
        return out.read(), usage.ru_maxrss / 1024


def ours_end_to_end(work: Work, data: Path, every_steps: int = 0) -> Figures:
    """`every_steps`: between checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB.format(data=data, cores=CORES, model=work.model, size=work.size, batch=work.batch,
                                  steps=work.warm_up + work.steps, precision=work.precision,
                                  every_steps=every_steps))  # fmt: skip
        begun = time.time()
        env = {"IMGD_RUN_DIR": folder, "IMGD_CHECKPOINT_DIR": f"{folder}/checkpoints"}
        _, memory = run([BIN / "imgtrain", job], env)
        raw, at, times = (Path(folder) / "events.0").read_bytes(), 0, {}
        while at < len(raw):
            length = int.from_bytes(raw[at : at + 4], "little")
            event = trainer_event().FromString(raw[at + 4 : at + 4 + length])  # type: ignore[attr-defined]
            at += 4 + length
            if event.HasField("step"):
                times[event.step.step] = event.time_us / 1e6
        rate = work.steps * work.batch / (times[work.warm_up + work.steps] - times[work.warm_up])
        return {"images/s": rate, "first step": times[1] - begun, "memory": memory}


def peer_command(work: Work, threads: int) -> list[str | Path]:
    settings = {"model": work.model, "size": work.size, "batch": work.batch, "threads": threads,
                "warm-up": work.warm_up, "steps": work.steps, "precision": work.precision,
                "device": work.device}  # fmt: skip
    return [sys.executable, PEER, *(f"--{key}={value}" for key, value in settings.items())]


def peer_end_to_end(work: Work, data: Path) -> Figures:
    printed, memory = run([*peer_command(work, CORES), f"--data={data}", f"--workers={CORES}"], {})
    result = json.loads(printed.splitlines()[-1])
    return {"images/s": result["images_per_second"], "first step": result["first_step_seconds"], "memory": memory}


def computing(command: list[str | Path], ranks: int, device: str) -> float:
    """Images per second of all ranks on batches that lie in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks),
             "LOCAL_WORLD_SIZE": str(ranks)} | ({} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]  # fmt: skip
    printed = [process.communicate() for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"{command[0]} failed:\n" + "\n".join(words for _, words in printed))
    rate: float = json.loads(printed[0][0].splitlines()[-1])["images_per_second"]
    return rate


def ours_computing(work: Work, ranks: int, threads: int, *more: str) -> float:
    return computing([BIN / "compute_bench", work.model, str(work.size), str(work.batch), str(work.steps), str(threads),
                      work.precision, *more], ranks, work.device)  # fmt: skip


def peer_computing(work: Work, ranks: int, threads: int, *more: str) -> float:
    return computing([*peer_command(work, threads), *more], ranks, work.device)


def why_not(work: Work) -> str:
    """Why a precision can't be measured here; empty where it can."""
    if work.device == "cuda":
        return ""
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    if work.precision == "fp32" or "avx512f" in flags or "amx_bf16" in flags:
        return ""
    return "the CPU has neither AVX-512 nor AMX: imgtrain computes in fp32 instead, PyTorch emulates bf16"


def computing_cases(work: Work) -> list[Case]:
    """All cores in one rank, and how well two ranks of one core each do beside one of one core."""

    def case(name: str, unit: str, ours: Callable[[], float], peer: Callable[[], float]) -> Case:
        why = why_not(work)
        return Case(f"{work.name} {name}", unit, "higher", {"imgtrain": why or ours, "pytorch": why or peer})

    def efficiency(measure_one: Callable[[Work, int, int], float]) -> float:
        return measure_one(work, 2, 1) / (2 * measure_one(work, 1, 1))

    cases = [case("computing alone", "images/s", functools.partial(ours_computing, work, 1, CORES),
                  functools.partial(peer_computing, work, 1, CORES))]  # fmt: skip
    if work is SMALL and CORES >= 2:
        half = CORES // 2
        cases.append(case("2 ranks, computing alone", "images/s", functools.partial(ours_computing, work, 2, half),
                          functools.partial(peer_computing, work, 2, half)))  # fmt: skip
        cases.append(case("efficiency of 2 ranks", "of 1", functools.partial(efficiency, ours_computing),
                          functools.partial(efficiency, peer_computing)))  # fmt: skip
    return cases


def end_to_end_cases(work: Work, data: Path) -> list[Case]:
    """One run gives all figures; the later cases take what the first one's passes left."""
    kept: dict[tuple[str, str], list[float]] = {}

    def once(subject: str, figure: str) -> float:
        if figure == "images/s":
            result = (ours_end_to_end if subject == "imgtrain" else peer_end_to_end)(work, data)
            for key, value in result.items():
                kept.setdefault((subject, key), []).append(value)
            return result[figure]
        return kept[subject, figure].pop(0)

    figures = (("images/s", "from JPEG", "images/s", "higher"), ("first step", "first step after", "s", "lower"),
               ("memory", "peak memory", "MiB", "lower"))  # fmt: skip
    return [
        Case(f"{work.name} {words}", unit, better,
             {s: why_not(work) or functools.partial(once, s, figure) for s in ("imgtrain", "pytorch")})
        for figure, words, unit, better in figures
    ]  # fmt: skip


def checkpoint_case(data: Path) -> Case:
    """One checkpoint falls into the steps that are timed."""
    return Case(f"{LONG.name} from JPEG", "images/s", "higher",
                {"a checkpoint each 100 steps": lambda: ours_end_to_end(LONG, data, every_steps=100)["images/s"],
                 "no checkpoints": lambda: ours_end_to_end(LONG, data)["images/s"]})  # fmt: skip


def gpu_cases(data: Path) -> list[Case]:
    alone = {"imgtrain": functools.partial(ours_computing, ON_GPU, 1, CORES),
             "imgtrain, CUDA graph": functools.partial(ours_computing, ON_GPU, 1, CORES, "graph"),
             "pytorch": functools.partial(peer_computing, ON_GPU, 1, CORES),
             "torch.compile": functools.partial(peer_computing, ON_GPU, 1, CORES, "--compile")}  # fmt: skip
    return [Case(f"{ON_GPU.name} computing alone", "images/s", "higher", dict(alone)),
            *end_to_end_cases(replace(ON_GPU, name=f"{ON_GPU.name} with {CORES} loader cores"), data)]  # fmt: skip


def main() -> None:
    on_gpu = sys.argv[1:] == ["--gpu"]
    if sys.argv[1:] and not on_gpu:
        raise SystemExit(f"bench train: found {' '.join(sys.argv[1:])}; allowed: --gpu")
    if on_gpu and not Path("/dev/nvidia0").exists():
        raise SystemExit(f"no GPU here; not measured: {ON_GPU.name}")
    with tempfile.TemporaryDirectory() as folder:
        shapes = Path(folder) / "shapes"
        # 1,280 images: whole batches, so that both sides count the same.
        subprocess.run([BIN / "imgcli", "dataset", "synth", "--classes", "10", "--per-class", "128",
                        "--val-per-class", "1", "--size", "500x375", shapes],
                       check=True, capture_output=True)  # fmt: skip
        if on_gpu:
            finish("train-gpu", measure(gpu_cases(shapes / "train")))
            return
        cases = [case for work in (SMALL, SMALL_BF16, LARGE)
                 for case in [*computing_cases(work), *end_to_end_cases(work, shapes / "train")]]  # fmt: skip
        cases.append(checkpoint_case(shapes / "train"))
        finish("train", measure(cases))
        print(f"not measured: {ON_GPU.name} on a GPU, which --gpu does where there is one")


if __name__ == "__main__":
    main()
