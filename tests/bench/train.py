"""`./run bench train`: imgtrain beside plain PyTorch in Python: computing alone, and end to end from JPEG files.

With --gpu on the first GPU alone, as train-gpu. With --only WORDS the cases whose names have these words; the others'
figures in build/bench/train.json (train-gpu.json) stay.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gpu
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from report import BIN, ROOT, Case, Seen, chosen, finish, measure
from watch import Peak, pss_mib

CORES = os.cpu_count() or 1
PEER = Path(__file__).with_name("peer_train.py")
Figures = dict[str, float]

JOB = """\
name: bench
model: {{name: {model}}}
data: {{train: {data}, image_size: {size}, min_scale: 0.5, workers: {threads}}}
train: {{epochs: 90, max_steps: {steps}, global_batch: {batch}, precision: {precision}, threads: {threads},
  log_every_steps: {log_every}}}
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
    goal: str = "at least 1.0x pytorch"  # from JPEG
    log_every: int = 1  # steps; warm_up and steps are multiples. On a GPU each waits until its queue is empty


SMALL = Work("rn18-64px-b64-fp32", "resnet18", 64, 64, steps=60, warm_up=20, goal="at least 1.3x pytorch")
SMALL_BF16 = replace(SMALL, name="rn18-64px-b64-bf16", precision="bf16")
LARGE = Work("rn50-224px-b16-fp32", "resnet50", 224, 16, steps=5, warm_up=1)
ON_GPU = Work("rn50-224px-b256-bf16", "resnet50", 224, 256, steps=60, warm_up=20, precision="bf16", device="cuda",
              log_every=20)  # fmt: skip
LONG = Work("rn50-96px-b16-fp32", "resnet50", 96, 16, steps=300, warm_up=0)
PROFILED_STEPS = 20  # as many as from one step that is logged to the next, for which the queue runs empty
BETWEEN = 50  # steps from one checkpoint to the next, of which the first half may be slower for it


@functools.cache
def trainer_event() -> type:
    """TrainerEvent's class, made from proto/ by protoc."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I", ROOT / "proto", "--include_imports", f"--descriptor_set_out={out.name}",
                        "imgd/v1/trainer.proto"], check=True)  # fmt: skip
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("imgd.v1.TrainerEvent"))


@dataclass
class Ran:
    """Ranks that have ended."""

    printed: str  # by rank 0
    memory: float  # the most that they, and all that they had started, held together, MiB
    gpu_memory: float  # likewise on the first GPU, 0 without


def run(command: list[str | Path], ranks: int = 1, device: str = "cpu", env: dict[str, str] | None = None) -> Ran:
    """Runs the command as each of these ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks),
             "LOCAL_WORLD_SIZE": str(ranks)} | ({} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
    with contextlib.ExitStack() as open_files:
        outputs = [open_files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2 * ranks)]
        processes = [
            subprocess.Popen(command, stdout=outputs[rank], stderr=outputs[ranks + rank], text=True,
                             env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | (env or {}))
            for rank in range(ranks)
        ]  # fmt: skip
        with (
            Peak(lambda: sum(pss_mib(process.pid) for process in processes)) as memory,
            Peak(gpu.memory_mib if device == "cuda" else lambda: 0) as gpu_memory,
        ):
            failed = [process.wait() for process in processes]
        for output in outputs:
            output.seek(0)
        if any(failed):
            raise SystemExit(f"{command[0]} failed:\n" + "\n".join(output.read() for output in outputs[ranks:]))
        return Ran(outputs[0].read(), memory.value, gpu_memory.value)


def seconds_of_steps(events: bytes) -> dict[int, float]:
    """When each step was reported, by its number from 1."""
    times, at = {}, 0
    while at < len(events):
        length = int.from_bytes(events[at : at + 4], "little")
        event = trainer_event().FromString(events[at + 4 : at + 4 + length])  # type: ignore[attr-defined]
        at += 4 + length
        if event.HasField("step"):
            times[event.step.step] = event.time_us / 1e6
    return times


def run_ours(
    work: Work, data: Path, folder: Path, ranks: int = 1, every_steps: int = 0, profile: Path | None = None
) -> tuple[dict[int, float], Ran]:
    """When each step was over, by its number from 1, and when the run began, as 0. `every_steps`: between checkpoints.
    `profile`: where a trace of some steps goes, which slows them."""
    job = folder / "job.yaml"
    job.write_text(JOB.format(data=data, threads=CORES // ranks, model=work.model, size=work.size,
                              batch=work.batch * ranks, steps=work.warm_up + work.steps, precision=work.precision,
                              log_every=work.log_every, every_steps=every_steps))  # fmt: skip
    steps = f"{work.warm_up}:{work.warm_up + PROFILED_STEPS}"
    more = [f"--profile={profile}", f"--profile-steps={steps}", "--profile-kernels"] if profile else []
    begun = time.time()
    ran = run([BIN / "imgtrain", job, *more], ranks, work.device,
              {"IMGD_RUN_DIR": str(folder), "IMGD_CHECKPOINT_DIR": f"{folder}/checkpoints"})  # fmt: skip
    for pulse in folder.glob("pulse.*"):
        if pulse.is_symlink():  # to memory; whoever removes the folder removes it
            pulse.readlink().unlink(missing_ok=True)
    return {0: begun} | seconds_of_steps((folder / "events.0").read_bytes()), ran


def ours_end_to_end(work: Work, data: Path, ranks: int = 1, profile: Path | None = None) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        times, ran = run_ours(work, data, Path(folder), ranks, 0, profile)
    if 1 not in times:
        with tempfile.TemporaryDirectory() as folder:
            first, _ = run_ours(replace(work, warm_up=1, steps=0, log_every=1), data, Path(folder), ranks)
        times[1] = times[0] + first[1] - first[0]
    rate = work.steps * work.batch * ranks / (times[work.warm_up + work.steps] - times[work.warm_up])
    return {"images/s": rate, "first step": times[1] - times[0], "memory": ran.memory, "GPU memory": ran.gpu_memory}


def peer_command(work: Work, threads: int) -> list[str | Path]:
    settings = {"model": work.model, "size": work.size, "batch": work.batch, "threads": threads,
                "warm-up": work.warm_up, "steps": work.steps, "precision": work.precision,
                "device": work.device}  # fmt: skip
    return [sys.executable, PEER, *(f"--{key}={value}" for key, value in settings.items())]


def peer_end_to_end(work: Work, data: Path, ranks: int = 1, profile: Path | None = None) -> Figures:
    threads = CORES // ranks
    more = [f"--profile={profile}", f"--profile-steps={PROFILED_STEPS}"] if profile else []
    ran = run([*peer_command(work, threads), f"--data={data}", f"--workers={threads}", *more], ranks, work.device)
    result = json.loads(ran.printed.splitlines()[-1])
    return {"images/s": result["images_per_second"], "first step": result["first_step_seconds"], "memory": ran.memory,
            "GPU memory": ran.gpu_memory}  # fmt: skip


def computing(command: list[str | Path], ranks: int, device: str) -> float:
    """Images per second of all ranks on batches that lie in memory."""
    rate: float = json.loads(run(command, ranks, device).printed.splitlines()[-1])["images_per_second"]
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


def seen_rate(once: Callable[[], float]) -> Seen:
    """Images per second that more than one case takes."""
    return Seen(lambda: {"images/s": once()})


@functools.cache
def ours_alone(work: Work) -> Seen:
    """Of all cores in one rank."""
    return seen_rate(functools.partial(ours_computing, work, 1, CORES))


def computing_cases(work: Work) -> list[Case]:
    """All cores in one rank, and how well two ranks of half the cores each do beside one of half the cores."""

    why = why_not(work)

    def case(name: str, unit: str, ours: Callable[[], float], peer: Callable[[], float], goal: str = "") -> Case:
        return Case(f"{work.name} {name}", unit, "higher", {"imgtrain": why or ours, "pytorch": why or peer}, goal=goal)

    cases = [case("computing alone", "images/s", ours_alone(work).figure("images/s"),
                  functools.partial(peer_computing, work, 1, CORES), "at least 1.0x pytorch")]  # fmt: skip
    if work is SMALL and CORES >= 2:
        half = CORES // 2
        measures = {"imgtrain": ours_computing, "pytorch": peer_computing}
        of_two = {s: seen_rate(functools.partial(m, work, 2, half)) for s, m in measures.items()}

        def efficiency(subject: str) -> Callable[[], float]:
            two = of_two[subject].figure("images/s")
            return lambda: two() / (2 * measures[subject](work, 1, half))

        cases.append(case("2 ranks, computing alone", "images/s", of_two["imgtrain"].figure("images/s"),
                          of_two["pytorch"].figure("images/s")))  # fmt: skip
        cases.append(case("efficiency of 2 ranks", "of 1", efficiency("imgtrain"), efficiency("pytorch"),
                          "at least pytorch's"))  # fmt: skip
    return cases


def end_to_end_cases(work: Work, data: Path, ranks: int = 1) -> list[Case]:
    """One run gives all figures."""
    seen = {"imgtrain": Seen(functools.partial(ours_end_to_end, work, data, ranks)),
            "pytorch": Seen(functools.partial(peer_end_to_end, work, data, ranks))}  # fmt: skip

    alone = ranks == 1
    figures = [("images/s", "from JPEG", "images/s", "higher", work.goal if alone else ""),
               ("first step", "first step after", "s", "lower", "at most half of pytorch's" if alone else ""),
               ("memory", "peak memory", "MiB", "lower", "")]  # fmt: skip
    if work.device == "cuda":
        figures.append(("GPU memory", "peak memory of the GPU", "MiB", "lower", ""))
    name = work.name if alone else f"{work.name} {ranks} ranks,"
    return [
        Case(f"{name} {words}", unit, better,
             {subject: why_not(work) or runs.figure(figure) for subject, runs in seen.items()}, goal=goal)
        for figure, words, unit, better, goal in figures
    ]  # fmt: skip


CHECKPOINT_NOTE = (
    "a checkpoint is measured within one run, not beside one without: the 25 steps after it beside the 25 steps after "
    "those, as a share of 100 steps; two runs of this length differ by more than that"
)


def checkpoint_case(data: Path) -> Case:
    """What a checkpoint costs, of 100 steps: by how much those steps take longer that follow on one, in which it is
    copied and written, than those in the middle between two. Both are of one run, since two runs of this length differ
    by more than is looked for."""

    def longer() -> float:
        with tempfile.TemporaryDirectory() as folder:
            times, _ = run_ours(LONG, data, Path(folder), every_steps=BETWEEN)
        seconds = {step: times[step] - times[step - 1] for step in times if step - 1 in times}
        costs, usual = [], []
        for saved in range(BETWEEN, LONG.warm_up + LONG.steps - BETWEEN + 1, BETWEEN):
            after = [seconds[saved + i] for i in range(1, BETWEEN // 2 + 1)]
            rest = [seconds[saved + i] for i in range(BETWEEN // 2 + 1, BETWEEN + 1)]
            costs.append(sum(after) - sum(rest))
            usual += rest
        return statistics.median(costs) / statistics.mean(usual)

    return Case(
        f"{LONG.name} a checkpoint each 100 steps", "% longer", "lower", {"imgtrain": longer}, goal="at most 2 %"
    )


def profiler_case() -> Case:
    """What the profiler's hooks cost in a step in which nobody asks for a profile: their own time beside a step's."""
    rate = ours_alone(SMALL).figure("images/s")

    def share() -> float:
        hooks: float = json.loads(run([BIN / "compute_bench", "hooks"]).printed)["seconds_per_step"]
        return 100 * hooks * rate() / SMALL.batch

    return Case(
        f"{SMALL.name} the profiler while it is off", "% of a step", "lower", {"imgtrain": share}, goal="below 0.1 %"
    )


def bucket_cases() -> list[Case]:
    """Gradients travel in buckets: small ones begin earlier, large ones are fewer."""
    work = replace(SMALL, steps=16)
    return [
        Case(f"{SMALL.name} 2 ranks, buckets of {mib} MiB", "images/s", "higher",
             {"imgtrain": functools.partial(ours_computing, work, 2, CORES // 2, f"buckets={mib}")})
        for mib in (1, 4, 25, 100)
    ]  # fmt: skip


def idle_on_gpu(work: Work, data: Path, measure_one: Callable[..., Figures]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        measure_one(work, data, profile=trace)
        return gpu.idle_share(json.loads(trace.read_text()))


def gpu_cases(data: Path) -> list[Case]:
    alone = {"imgtrain": functools.partial(ours_computing, ON_GPU, 1, CORES),
             "imgtrain, CUDA graph": functools.partial(ours_computing, ON_GPU, 1, CORES, "graph"),
             "pytorch": functools.partial(peer_computing, ON_GPU, 1, CORES),
             "torch.compile": functools.partial(peer_computing, ON_GPU, 1, CORES, "--compile")}  # fmt: skip
    chip = gpu.asked_of_gpu("name")
    seen = {subject: seen_rate(once) for subject, once in alone.items()}

    def share(subject: str) -> Callable[[], float]:
        rate = seen[subject].figure("images/s")
        return lambda: gpu.share_of_peak(chip, ON_GPU.model, rate()) or 0

    known = gpu.share_of_peak(chip, ON_GPU.model, 1) is not None
    why = "" if known else f"tests/bench/gpu.py does not know the peak of {chip}"
    loaded = replace(ON_GPU, name=f"{ON_GPU.name} with {CORES} loader cores")
    return [
        Case(f"{ON_GPU.name} computing alone", "images/s", "higher",
             {s: runs.figure("images/s") for s, runs in seen.items()}, goal="at least 1.0x pytorch"),
        Case(f"{ON_GPU.name} share of the peak of {chip}", "of 1", "higher",
             {s: why or share(s) for s in alone}),
        *end_to_end_cases(loaded, data),
        Case(f"{loaded.name} time without a kernel", "of 1", "lower",
             {"imgtrain": functools.partial(idle_on_gpu, loaded, data, ours_end_to_end),
              "pytorch": functools.partial(idle_on_gpu, loaded, data, peer_end_to_end)}, goal="at most 0.05"),
    ]  # fmt: skip


def with_versions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each with what its subject computes with."""
    ours = subprocess.run([BIN / "imgtrain", "--libraries"], check=True, capture_output=True, text=True).stdout
    theirs = [f"{package} {importlib.metadata.version(package)}" for package in ("torch", "torchvision")]
    for row in rows:
        row["note"] = "with " + ", ".join(ours.splitlines() if row["subject"].startswith("imgtrain") else theirs)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench train", description=__doc__)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.gpu and not gpu.there():
        raise SystemExit(f"no GPU here; not measured: {ON_GPU.name}")
    with tempfile.TemporaryDirectory() as folder:
        shapes = Path(folder) / "shapes"
        # 1,280 images: whole batches, so that both sides count the same.
        subprocess.run([BIN / "imgcli", "dataset", "synth", "--classes", "10", "--per-class", "128",
                        "--val-per-class", "1", "--size", "500x375", shapes],
                       check=True, capture_output=True)  # fmt: skip
        if options.gpu:
            cases = gpu_cases(shapes / "train")
            wanted = chosen(cases, options.only)
            finish("train-gpu", with_versions(measure(wanted)), keep=len(wanted) < len(cases))
            return
        cases = [case for work in (SMALL, SMALL_BF16, LARGE)
                 for case in [*computing_cases(work), *end_to_end_cases(work, shapes / "train")]]  # fmt: skip
        if CORES >= 2:
            cases += [*end_to_end_cases(SMALL, shapes / "train", ranks=2), *bucket_cases()]
        cases += [checkpoint_case(shapes / "train"), profiler_case()]
        wanted = chosen(cases, options.only)
        rows = measure(wanted)
        for row in rows:
            if "a checkpoint each" in row["case"]:
                row["note"] = CHECKPOINT_NOTE
        finish("train", rows, keep=len(wanted) < len(cases))
        print(f"not measured: {ON_GPU.name} on a GPU, which --gpu does where there is one")


if __name__ == "__main__":
    main()
