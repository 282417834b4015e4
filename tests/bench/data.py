"""`./run bench data`: the loader beside its peers, from the same JPEG files on the same cores; and conversion.

usage: data.py [--quick | --gpu]

Each row makes ready uint8 [64, 224, 224, 3] batches of RandomResizedCrop and flip in a shuffled order, with as many
threads or workers as there are cores, all files in the page cache. --quick: fewer images, one short pass, to try it.
--gpu: nvJPEG on the first GPU, and what it is compared with on this machine, as data-gpu.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu
from photos import photos
from report import BIN, ROOT, finish

CORES = os.cpu_count() or 1
DEPS = Path(os.environ.get("IMGD_DEPS", ROOT / ".deps"))
PEERS = DEPS / "peers/bin/python"
WORK = ROOT / "build/bench"
SIZES = {"70k": 70_000, "110k": 110_000}
BESIDE = ("peak_rss_mib", "pss_mib", "pixel_mean", "label_mean", "label_order", "left_to_cpu_percent")

NOTES = {
    "imgd fast": "ImageFolder; libjpeg scales by 1/2, 1/4 or 1/8 where the crop stays at least 224 pixels",
    "imgd exact": "ImageFolder; decoded at full size, then resized with antialiasing",
    "imgd shards fast": "the same images in WebDataset shards with our index",
    "imgd indexed fast": "restart-indexed shards (convert --index restart): only the crop's part is decoded",
    "imgd indexed exact": "likewise, at full size",
    "imgd nvjpeg exact": "ImageFolder; decoded at full size by nvJPEG on the GPU, resized on the CPU",
    "imgd http cold fast": "the plain shards from imgcli dataset serve on loopback; first epoch, empty cache",
    "imgd http cached fast": "likewise, once they are in the local cache",
    "torchvision": "ImageFolder and DataLoader as everybody writes them: PIL decodes the whole image at full size",
    "torchvision-draft": "the same with a loader of one's own that asks PIL for draft mode (scaled decoding) by crop",
    "dali": "CPU pipeline, decoders.image_random_crop: only the crop, full size, fancy upsampling (its default)",
    "dali-fast-idct": "the same with use_fast_idct; DALI has no scaled decoding",
    "webdataset": "the shards through the webdataset library, PIL decodes the whole image at full size",
    "ffcv": "a .beton file that holds the same JPEG bytes; decodes the whole image at full size",
    "ceiling fast": "libjpeg-turbo alone decodes the crops of the fast mode from memory; no resize, no batch",
    "ceiling exact": "likewise at full size",
}
# What the decoder on the GPU is measured beside.
BESIDE_NVJPEG = ("imgd nvjpeg exact", "imgd exact", "imgd fast", "torchvision", "dali")


class Missing(Exception):
    """Why something can't be measured."""


@dataclass
class Subject:
    case: str
    name: str
    unit: str
    once: Callable[[], dict[str, Any]]  # one pass: "value" and what stands beside it
    passes: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""


def run_json(command: list[Any], env: dict[str, str] | None = None) -> dict[str, Any]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=os.environ | (env or {}))
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Missing(lines[-1][:200])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result | {"value": result["images_per_second"]}


def imgcli_can(words: list[str], option: str) -> None:
    text = subprocess.run([BIN / "imgcli", *words, "--help"], capture_output=True, text=True).stdout
    if f"  {option}" not in text:
        raise Missing(f"this build's imgcli {' '.join(words)} has no {option}")


def convert(source: Path, out: Path, *options: str) -> float:
    """Seconds."""
    shutil.rmtree(out, ignore_errors=True)
    begun = time.perf_counter()
    done = subprocess.run([BIN / "imgcli", "dataset", "convert", *options, source, out], capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing("imgcli dataset convert: " + done.stderr.strip()[-200:])
    return time.perf_counter() - begun


def made_shards(source: Path, kind: str) -> Path:
    """Made anew in each run: the program may have changed."""
    out = WORK / "shards" / f"{source.name}-{kind}"
    return out if out in MADE else convert_once(source, out, kind)


MADE: set[Path] = set()


def convert_once(source: Path, out: Path, kind: str) -> Path:
    options = ["--shards", str(4 * CORES)]
    if kind == "indexed":
        imgcli_can(["dataset", "convert"], "--index")
        options += ["--index", "restart"]
    convert(source, out, *options)
    MADE.add(out)
    return out


def beton(source: Path) -> Path:
    out = WORK / "shards" / f"{source.name}.beton"
    if out not in MADE:
        done = subprocess.run([PEERS, ROOT / "tests/bench/peer_ffcv.py", source, out], capture_output=True, text=True)
        if done.returncode != 0:
            reason = DEPS / "peers/ffcv-missing"
            why = reason.read_text() if reason.exists() else done.stderr
            raise Missing(" ".join(why.split())[-200:])
        MADE.add(out)
    return out


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a server of the folder."""
    imgcli_can(["dataset"], "serve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([BIN / "imgcli", "dataset", "serve", folder, "--port", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if server.poll() is not None:
                raise Missing("imgcli dataset serve: " + (server.stderr.read() if server.stderr else "").strip()[-200:])
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait()


def loader(
    where: Path | str, mode: str, seconds: float, least: int, env: dict[str, str] | None = None, *more: str
) -> dict[str, Any]:
    return run_json([BIN / "loader_bench", "loader", where, mode, CORES, seconds, least, *more], env)


def by_nvjpeg(where: Path, seconds: float, least: int) -> dict[str, Any]:
    """With the libraries that come with LibTorch. Missing: "no GPU: ..." where there is none."""
    env = {}
    for name, key in (("libnvjpeg", "IMGD_NVJPEG_LIBRARY"), ("libcudart", "IMGD_CUDART_LIBRARY")):
        found = sorted(DEPS.glob(f"torch/lib/python3*/site-packages/nvidia/*/lib/{name}.so.*"))
        if found:
            env[key] = str(found[0])
    return loader(where, "exact", seconds, least, env, "--decoder", "nvjpeg")


def from_http(source: Path, seconds: float, least: int, cold: bool) -> dict[str, Any]:
    cache = WORK / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    env = {"IMGD_CACHE_DIR": str(cache), "no_proxy": "127.0.0.1"}
    with served(made_shards(source, "plain")) as url:
        if cold:
            images = json.loads((made_shards(source, "plain") / "shards.json").read_text())["shards"]
            epoch = sum(shard["images"] for shard in images)
            # What is timed ends with the first epoch, of which nine batches come before.
            return loader(url, "fast", 0, max(epoch - 10 * 64, 64), env)
        loader(url, "fast", 0, 2 * least, env)  # fills the cache
        return loader(url, "fast", seconds, least, env)


class Peers:
    """The peers' processes, each kept from its first pass on; idle when it is not its turn."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, Path], subprocess.Popen[str]] = {}

    def one_pass(self, name: str, where: Callable[[], Path], seconds: float, least: int) -> dict[str, Any]:
        key = (name, where())
        if key not in self.running:
            command = [str(part) for part in (PEERS, ROOT / "tests/bench/peer_data.py", *key, CORES)]
            log = (WORK / f"peer-{name}.log").open("w")
            self.running[key] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        process = self.running[key]
        assert process.stdin is not None and process.stdout is not None
        try:
            print(seconds, least, file=process.stdin, flush=True)
            result: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            lines = (WORK / f"peer-{name}.log").read_text().strip().splitlines() or ["it ended"]
            raise Missing(lines[-1][:200]) from None
        return result | {"value": result["images_per_second"]}

    def close(self) -> None:
        for process in self.running.values():
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


def conversion(source: Path, kind: str) -> dict[str, Any]:
    out = WORK / "shards" / f"{source.name}-{kind}"
    MADE.discard(out)
    read = sum(path.stat().st_size for path in source.rglob("*.jpg"))
    begun = time.perf_counter()
    convert_once(source, out, kind)
    took = time.perf_counter() - begun
    written = sum(path.stat().st_size for path in out.glob("*.tar"))
    return {"value": read / took / 1e6, "read_mb": round(read / 1e6, 1), "written_mb": round(written / 1e6, 1)}


def loading(source: Path, peers: Peers, seconds: float, least: int) -> list[Subject]:
    plain = functools.partial(made_shards, source, "plain")
    indexed = functools.partial(made_shards, source, "indexed")
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "imgd fast": lambda: loader(source, "fast", seconds, least),
        "imgd exact": lambda: loader(source, "exact", seconds, least),
        "imgd shards fast": lambda: loader(plain(), "fast", seconds, least),
        "imgd indexed fast": lambda: loader(indexed(), "fast", seconds, least),
        "imgd indexed exact": lambda: loader(indexed(), "exact", seconds, least),
        "imgd nvjpeg exact": lambda: by_nvjpeg(source, seconds, least),
        "imgd http cold fast": lambda: from_http(source, seconds, least, cold=True),
        "imgd http cached fast": lambda: from_http(source, seconds, least, cold=False),
    }
    for name in ("torchvision", "torchvision-draft", "dali", "dali-fast-idct"):
        measured[name] = functools.partial(peers.one_pass, name, lambda: source, seconds, least)
    measured["webdataset"] = lambda: peers.one_pass("webdataset", plain, seconds, least)
    measured["ffcv"] = lambda: peers.one_pass("ffcv", lambda: beton(source), seconds, least)
    for mode in ("fast", "exact"):
        measured[f"ceiling {mode}"] = functools.partial(
            run_json, [BIN / "loader_bench", "ceiling", source, mode, CORES, seconds, least]
        )
    return [Subject(f"rrc224-{source.name}", name, "images/s", once) for name, once in measured.items()]


def measure(subjects: list[Subject], passes: int) -> None:
    for number in range(passes):
        for subject in subjects:
            if subject.why:
                continue
            try:
                subject.passes.append(subject.once())
            except Missing as missing:
                subject.why = str(missing)
                print(f"  {subject.case}, {subject.name}: not measured: {subject.why}", flush=True)
                continue
            value = subject.passes[-1]["value"]
            print(f"  {subject.case}, pass {number + 1}: {subject.name} {value:.4g} {subject.unit}", flush=True)


def rows_of(subjects: list[Subject]) -> list[dict[str, Any]]:
    """Ours with its ratio to every peer, and imgd's other forms to the plain one."""
    rows = []
    for s in subjects:
        row: dict[str, Any] = {"case": s.case, "subject": s.name, "unit": s.unit, "note": NOTES.get(s.name, "")}
        if s.why:
            row |= {"value": None, "why": s.why}
        else:
            values = [p["value"] for p in s.passes]
            row |= {"value": statistics.median(values), "min": min(values), "max": max(values)}
            row["beside"] = {k: v for k, v in s.passes[-1].items() if k in BESIDE or k.endswith("_mb")}
        rows.append(row)
    for row in rows:
        if row["value"] is None or not row["subject"].startswith("imgd"):
            continue
        others = [r for r in rows if r["case"] == row["case"] and r["value"] is not None]
        mode = row["subject"].rsplit(" ", 1)[-1]
        row["ratio"] = {
            r["subject"].split()[0]: round(row["value"] / r["value"], 3)
            for r in others
            if not r["subject"].startswith("imgd")
            and (r["subject"] == f"ceiling {mode}" or "ceiling" not in r["subject"])
        }
        local = next((r for r in others if r["subject"] == "imgd shards fast"), None)
        if "http" in row["subject"] and local:
            row["ratio"]["local shards"] = round(row["value"] / local["value"], 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench data")
    parser.add_argument("--quick", action="store_true", help="few images, one short pass: to try it, not to measure")
    parser.add_argument("--gpu", action="store_true", help="nvJPEG, and what it is compared with")
    options = parser.parse_args()
    quick = options.quick
    if options.gpu and not gpu.there():
        raise SystemExit("no GPU here; not measured: imgd nvjpeg")
    count, passes, seconds, least = (200, 1, 1.0, 128) if quick else (2000, 3, 2.5, 2000)
    begun = time.perf_counter()
    print(f"photographs: {count} of 500x375 at about 70 and 110 KB", flush=True)
    folders = photos(WORK / "photos", count, SIZES)
    peers = Peers()
    subjects = [s for folder in folders.values() for s in loading(folder, peers, seconds, least)]
    if options.gpu:
        subjects = [s for s in subjects if s.name in BESIDE_NVJPEG]
    else:
        for kind, name in (("plain", "imgd to webdataset"), ("indexed", "imgd to webdataset, restart-indexed")):
            subjects.append(Subject("convert-110k", name, "MB/s", functools.partial(conversion, folders["110k"], kind)))
    try:
        measure(subjects, passes)
    finally:
        peers.close()
    shutil.rmtree(WORK / "cache", ignore_errors=True)
    rows = rows_of(subjects)
    finish("data-quick" if quick else "data-gpu" if options.gpu else "data", rows)
    print(f"took {time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
