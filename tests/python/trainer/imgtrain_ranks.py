"""Starting ranks of imgtrain as an agent would, and reading what they report."""

# ruff: noqa: ANN401  (a setting may have any type that YAML has)
from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from harness import free_port
from PIL import Image, ImageDraw
from safetensors.torch import load_file

REPO = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("IMGD_BIN", REPO / "build" / "release" / "bin"))
IMGTRAIN = BIN / "imgtrain"

# Fields of TrainerEvent and its parts (proto/imgd/v1/trainer.proto).
EVENTS = {
    3: "started",
    4: "step",
    5: "epoch",
    6: "checkpoint",
    7: "finished",
    8: "failed",
    9: "bad_image",
    16: "profile",
    17: "note",
    18: "classes",
    19: "samples",
}
FIELDS: dict[str, dict[int, str]] = {
    "samples": {1: "step", 2: "epoch"},
    "started": {
        1: "pid",
        2: "world_size",
        3: "device",
        4: "start_step",
        5: "total_steps",
        6: "steps_per_epoch",
        7: "train_images",
        8: "val_images",
        9: "resumed_from",
        10: "trial",
    },
    "trial": {1: "bytes", 2: "seconds", 3: "bytes_per_second", 4: "nodes"},
    "step": {
        1: "step",
        2: "epoch",
        3: "loss",
        4: "top1",
        5: "learning_rate",
        6: "rank_images_per_second",
        7: "images_per_second",
        8: "input_wait_ratio",
        9: "eta_seconds",
        10: "total_steps",
        11: "loader",
        12: "gradient_norm",
        16: "times",
        17: "ranks",
        18: "penalty",
    },
    "times": {
        1: "steps",
        2: "input_seconds",
        3: "forward_seconds",
        4: "backward_seconds",
        5: "communication_seconds",
        6: "optimizer_seconds",
        7: "all_reduce_seconds",
        8: "all_reduce_hidden_ratio",
    },
    "ranks": {
        1: "own_least_seconds",
        2: "own_mean_seconds",
        3: "own_most_seconds",
        4: "wait_least_seconds",
        5: "wait_mean_seconds",
        6: "wait_most_seconds",
        7: "slowest_rank",
        8: "slowest_input_seconds",
        9: "ranks",
    },
    "loader": {
        1: "interval_seconds",
        2: "wait_seconds",
        3: "workers",
        4: "read_seconds",
        5: "decode_seconds",
        6: "augment_seconds",
        7: "idle_seconds",
        8: "images",
        9: "bytes",
        10: "images_left_to_cpu",
    },
    "epoch": {
        1: "epoch",
        2: "step",
        3: "val_loss",
        4: "val_top1",
        5: "val_top5",
        6: "val_images",
        7: "val_seconds",
        8: "total_epochs",
    },
    "checkpoint": {
        1: "path",
        2: "step",
        3: "generation",
        4: "size_bytes",
        5: "manifest_sha256",
    },
    "finished": {1: "step", 2: "val_top1", 3: "val_top5"},
    "failed": {1: "message", 2: "bad_input", 3: "collective_broken"},
    "note": {2: "text"},
    "classes": {1: "step", 2: "epoch", 7: "class_count"},
    "profile": {1: "step", 2: "rank", 3: "trace", 4: "table"},
    "bad_image": {1: "path", 2: "error", 3: "count"},
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _decode(data: bytes) -> dict[int, Any]:
    """The wire format of one message without repeated fields."""
    out: dict[int, Any] = {}
    at = 0
    value: Any
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
        elif tag & 7 == 1:
            value = struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            size, at = _varint(data, at)
            value = data[at : at + size]
            at += size
        out[tag >> 3] = value
    return out


def _named(kind: str, message: bytes) -> dict[str, Any]:
    """The fields of a message that are known here; a newer trainer may say more."""
    known = FIELDS[kind]
    values: dict[str, Any] = {}
    for number, value in _decode(message).items():
        name = known.get(number)
        if name in ("loader", "times", "trial") or (kind == "step" and name == "ranks"):
            values[name] = SimpleNamespace(**{n: 0 for n in FIELDS[name].values()} | _named(name, value))
        elif name:
            values[name] = value.decode() if isinstance(value, bytes) else value
    return values


@dataclass
class Event:
    """One report of a rank; absent fields read as 0."""

    sequence: int
    kind: str
    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.values.get(name, 0)


def read_events(path: Path) -> list[Event]:
    data = path.read_bytes() if path.exists() else b""
    events = []
    at = 0
    while len(data) - at >= 4:
        size = struct.unpack_from("<I", data, at)[0]
        if len(data) - at - 4 < size:
            break
        message = _decode(data[at + 4 : at + 4 + size])
        number = next(n for n in EVENTS if n in message)
        kind = EVENTS[number]
        values = _named(kind, message[number])
        events.append(Event(message[1], kind, values))
        at += 4 + size
    return events


def send_command(path: Path, payload: bytes) -> bytes:
    """Sends a framed TrainerCommand and returns the reply's payload."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(struct.pack("<I", len(payload)) + payload)
        reply = b""
        while len(reply) < 4 or len(reply) < 4 + struct.unpack_from("<I", reply)[0]:
            piece = connection.recv(4096)
            assert piece, "the trainer closed the connection"
            reply += piece
        return reply[4:]


CHECKPOINT_COMMAND = b"\x0a\x00"
STOP_COMMAND = b"\x12\x00"
STOP_WITH_CHECKPOINT_COMMAND = b"\x12\x02\x08\x01"


def make_images(
    root: Path,
    per_class: int,
    classes: int = 4,
    size: int = 48,
    seed: int = 1,
    shape: tuple[int, int] | None = None,
) -> Path:
    """Shapes on noise as an ImageFolder; `shape` makes them longer than high."""
    rng = random.Random(seed)
    noise = numpy.random.default_rng(seed)
    for c in range(classes):
        folder = root / f"class{c}"
        folder.mkdir(parents=True)
        for i in range(per_class):
            width, height = shape or (size, size)
            # Not Pillow's effect_noise(), which has no seed: every run of a test sees the same images.
            grey = noise.normal(128, 50, (height, width)).clip(0, 255).astype("uint8")
            image = Image.fromarray(grey).convert("RGB")
            colour = tuple(rng.randrange(256) for _ in range(3))
            x, y, side = rng.randrange(size // 2), rng.randrange(size // 2), size // 3
            draw = ImageDraw.Draw(image)
            if c % 2 == 0:
                draw.rectangle((x, y, x + side, y + side), fill=colour)
            else:
                draw.ellipse((x, y, x + side, y + side), fill=colour)
            if c >= 2:
                draw.line((0, y, size, y), fill=colour, width=3)
            image.save(folder / f"{i:03}.jpg", quality=90)
    return root


@dataclass
class Run:
    """The ranks of one start, and what they report."""

    folder: Path
    ranks: list[subprocess.Popen[str]]
    output: list[tuple[str, str]] = field(default_factory=list)

    def wait(self, timeout: float = 120) -> list[int]:
        deadline = time.monotonic() + timeout
        for rank in self.ranks[len(self.output) :]:
            self.output.append(rank.communicate(timeout=max(deadline - time.monotonic(), 0.1)))
        return [rank.returncode for rank in self.ranks]

    def finish(self) -> Run:
        codes = self.wait()
        assert codes == [0] * len(codes), self.output
        return self

    def events(self, kind: str, rank: int = 0) -> list[Event]:
        return [e for e in read_events(self.folder / f"events.{rank}") if e.kind == kind]

    def losses(self) -> dict[int, float]:
        return {e.step: e.loss for e in self.events("step")}

    def wait_for(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        """Waits for something that the ranks do; fails when they end without it."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            ended = [rank.poll() is not None for rank in self.ranks]
            assert not any(ended) or condition(), [
                rank.communicate() for rank, e in zip(self.ranks, ended, strict=True) if e
            ]
            time.sleep(0.02)

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: any(e.step >= step for e in self.events("step")))


class Trainer:
    """Starts imgtrain as an agent's shim would."""

    def __init__(self, tmp_path: Path, train: Path, val: Path) -> None:
        self.tmp_path = tmp_path
        self.checkpoints = tmp_path / "checkpoints"
        self.settings: dict[str, Any] = {
            "name": "test",
            "seed": 3,
            "model.name": "resnet18",
            "data.train": train,
            "data.val": "",
            "data.image_size": 32,
            "data.workers": 1,
            "train.epochs": 4,
            "train.global_batch": 16,
            "train.precision": "fp32",
            "train.device": "cpu",
            "train.log_every_steps": 1,
            "train.threads": 1,
            "optimizer.lr": 0.05,
            "schedule.warmup_epochs": 1,
        }
        self.val = val
        self.started: list[Run] = []

    def job_file(self, **changes: Any) -> Path:
        """A job file; keys with '__' for '.'."""
        merged = self.settings | {key.replace("__", "."): value for key, value in changes.items()}
        sections: dict[str, list[str]] = {}
        for key, value in merged.items():
            section, _, name = key.rpartition(".")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            sections.setdefault(section, []).append(f"{name}: {text}" if text else f'{name}: ""')
        lines = sections.pop("", [])
        for section, entries in sections.items():
            lines += [f"{section}:"] + [f"  {entry}" for entry in entries]
        path = self.tmp_path / f"job{len(list(self.tmp_path.glob('job*.yaml')))}.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(
        self,
        ranks: int = 1,
        env: dict[str, str] | None = None,
        master: socket.socket | None = None,
        **changes: Any,
    ) -> Run:
        """`master`: a listening socket for rank 0 to serve the rendezvous store on, as an agent hands it down."""
        folder = self.tmp_path / f"run{len(self.started)}"
        folder.mkdir()
        job = self.job_file(**changes)
        port = master.getsockname()[1] if master else free_port()
        run = Run(folder, [])
        for rank in range(ranks):
            variables = (
                os.environ
                | {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "IMGD_RUN_DIR": str(folder),
                    "IMGD_CHECKPOINT_DIR": str(self.checkpoints),
                    "CUDA_VISIBLE_DEVICES": "",
                }
                | (env or {})
            )
            fds = (master.fileno(),) if master and rank == 0 else ()
            if fds:
                variables["IMGD_MASTER_FD"] = str(fds[0])
            run.ranks.append(
                subprocess.Popen(
                    [IMGTRAIN, job],
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    pass_fds=fds,
                )
            )
        self.started.append(run)
        return run

    def run(self, ranks: int = 1, env: dict[str, str] | None = None, **changes: Any) -> Run:
        return self.start(ranks, env, **changes).finish()

    def clean_up(self) -> None:
        for run in self.started:
            for rank in run.ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.communicate()
            for pulse in run.folder.glob("pulse.*"):
                if pulse.is_symlink():  # as an agent does
                    pulse.readlink().unlink(missing_ok=True)


def files_at(trainer: Trainer, step: int) -> dict[str, dict[str, torch.Tensor]]:
    """The tensors of the newest checkpoint of this step."""
    folder = sorted(trainer.checkpoints.glob(f"g*/step{step}"))[-1]
    return {path.name: load_file(path) for path in folder.glob("*.safetensors")}


Steps = dict[int, list[int]]


def steps_of(trace: Path) -> Steps:
    """The samples of each step, all ranks together."""
    by_rank: dict[tuple[int, int], list[int]] = {}
    for line in trace.read_text().splitlines():
        step, rank, *samples = map(int, line.split())
        assert (step, rank) not in by_rank, line
        by_rank[step, rank] = samples
    steps: Steps = {}
    for (step, _), samples in sorted(by_rank.items()):
        steps.setdefault(step, []).extend(samples)
    return steps
