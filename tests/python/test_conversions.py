"""What convert writes, read by software that is not ours: each form by its own world's library."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import pytest
import torchvision
import webdataset

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("IMGD_BIN", ROOT / "build/release/bin"))
FORMS = ("webdataset", "tfrecord", "recordio", "imagefolder")
CLASSES, PER_CLASS = 5, 8


class Image(NamedTuple):
    key: str  # name without ending
    label: int
    sha256: str


def image(name: str, label: int, content: bytes) -> Image:
    return Image(name.rsplit(".", 1)[0], label, hashlib.sha256(content).hexdigest())


def read_imagefolder(path: Path) -> list[Image]:
    folder = torchvision.datasets.ImageFolder(str(path))
    return [image(str(Path(f).relative_to(path)), label, Path(f).read_bytes()) for f, label in folder.samples]


def read_webdataset(path: Path) -> list[Image]:
    shards = [str(p) for p in sorted(path.glob("*.tar"))]
    samples = webdataset.WebDataset(shards, shardshuffle=False)
    return [image(s["__key__"] + ".jpg", int(s["cls"]), s["jpg"]) for s in samples]


def check_tfrecord_checksums(path: Path) -> int:
    """Records whose two masked CRC-32C are right; fails on a wrong one."""

    def masked(data: bytes) -> int:
        crc = crc32c.crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    data, at, count = path.read_bytes(), 0, 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked(data[at : at + 8])
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(data[at + 12 : at + 12 + length])
        at, count = at + 16 + length, count + 1
    return count


# In a process of its own: the package's generated code needs protobuf's slow implementation, chosen at its import;
# and with a new protobuf its loader takes the map of features for a list, so that only its lower half is used.
TFRECORD_READER = """
import pickle, sys, types
sys.modules["tfrecord.torch"] = types.ModuleType("tfrecord.torch")  # or it would import all of torch
from tfrecord import example_pb2, reader

def value(feature):
    kind = feature.WhichOneof("kind")
    (only,) = getattr(feature, kind).value
    return only

def features(record):
    example = example_pb2.Example.FromString(bytes(record))
    return {entry.key: value(entry.value) for entry in example.features.feature}

records = [[features(record) for record in reader.tfrecord_iterator(shard)] for shard in sys.argv[1:]]
sys.stdout.buffer.write(pickle.dumps(records))
"""


def tfrecord_examples(shards: list[Path]) -> list[list[dict[str, Any]]]:
    env = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", TFRECORD_READER, *shards], check=True, capture_output=True, env=env)
    return pickle.loads(done.stdout)


def read_tfrecord(path: Path) -> list[Image]:
    found = []
    shards = sorted(path.glob("*-of-*"))
    for shard, records in zip(shards, tfrecord_examples(shards), strict=True):
        assert len(records) == check_tfrecord_checksums(shard)
        for r in records:
            assert (r["image/height"], r["image/width"], r["image/channels"]) == (48, 64, 3)
            assert (r["image/format"], r["image/colorspace"]) == (b"JPEG", b"RGB")
            name, synset = r["image/filename"].decode(), r["image/class/synset"].decode()
            assert name.startswith(synset + "/")
            found.append(image(name, r["image/class/label"] - 1, r["image/encoded"]))
    return found


MAGIC = 0xCED7230A


def recordio_record(data: bytes, at: int) -> tuple[bytes, int]:
    """The record at a byte, put together, and where the next one begins (dmlc-core, recordio.h)."""
    content = b""
    while True:
        magic, word = struct.unpack_from("<II", data, at)
        assert magic == MAGIC, f"no record at byte {at}"
        kind, length = word >> 29, word & (1 << 29) - 1
        if kind in (2, 3):
            content += struct.pack("<I", MAGIC)
        content += data[at + 8 : at + 8 + length]
        at += 8 + (length + 3) // 4 * 4
        if kind in (0, 3):
            return content, at


def read_recordio(path: Path) -> list[Image]:
    found = []
    for shard in sorted(path.glob("*.rec")):
        offsets = dict(map(int, line.split("\t")) for line in shard.with_suffix(".idx").read_text().splitlines())
        lines = [line.split("\t") for line in shard.with_suffix(".lst").read_text().splitlines()]
        data, at = shard.read_bytes(), 0
        for number, label_text, name in lines:
            assert offsets[int(number)] == at
            content, at = recordio_record(data, at)
            flag, label, record_id, _ = struct.unpack_from("<IfQQ", content)
            assert (flag, record_id, label) == (0, int(number), float(label_text))
            found.append(image(name, int(label), content[24:]))
        assert at == len(data)
    return found


READ = {"webdataset": read_webdataset, "tfrecord": read_tfrecord, "recordio": read_recordio,
        "imagefolder": read_imagefolder}  # fmt: skip


def convert(source: Path, out: Path, form: str, *options: str) -> str:
    sharded = () if form == "imagefolder" else ("--shards", "3")
    command = [BIN / "imgcli", "dataset", "convert", "--to", form, *sharded, *options, source, out]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn set, with one file that RecordIO has to cut: it holds the magic number at a whole word."""
    out = tmp_path_factory.mktemp("convert") / "shapes"
    command = [BIN / "imgcli", "dataset", "synth", "--classes", str(CLASSES), "--per-class", str(PER_CLASS),
               "--val-per-class", "0", "--size", "64x48", out]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    first = min((out / "train").rglob("*.jp*g"))
    content = first.read_bytes()
    first.write_bytes(content[:2] + b"\xff\xfe\x00\x0c##" + 2 * struct.pack("<I", MAGIC) + content[2:])
    return out / "train"


def digest(images: list[Image]) -> str:
    return hashlib.sha256(repr(sorted(images)).encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows = [f"{'FROM':<12} {'TO':<12} {'IMAGES':>6} {'CLASSES':>7}  {'BEFORE':<16}  AFTER"]
    yield rows
    print("\n" + "\n".join(rows))


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The drawn set in each form."""
    root = tmp_path_factory.mktemp("forms")
    for form in FORMS:
        convert(source, root / form, form)
    return {form: root / form for form in FORMS}


@pytest.mark.parametrize(("first", "second"), list(itertools.product(FORMS, FORMS)))
def test_every_pair_keeps_names_labels_and_bytes(
    source: Path, made: dict[str, Path], tmp_path: Path, table: list[str], first: str, second: str
) -> None:
    wanted = read_imagefolder(source)
    before = READ[first](made[first])
    convert(made[first], tmp_path / "out", second, "--from", first)
    after = READ[second](tmp_path / "out")
    labels = {i.label for i in after}
    table.append(f"{first:<12} {second:<12} {len(after):>6} {len(labels):>7}  {digest(before):<16}  {digest(after)}")
    assert len(after) == CLASSES * PER_CLASS
    assert sorted(before) == sorted(wanted)
    assert sorted(after) == sorted(wanted)


def test_labels_can_begin_at_zero(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", "tfrecord", "--label-offset", "0")
    shards = tfrecord_examples(sorted((tmp_path / "out").glob("*-of-*")))
    labels = [r["image/class/label"] for records in shards for r in records]
    assert set(labels) == set(range(CLASSES))


def test_a_class_without_images_keeps_its_place(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "shards", "webdataset")
    shards = tmp_path / "shards"
    names = sorted(p.name for p in source.iterdir())
    text = (shards / "shards.json").read_text()
    (shards / "shards.json").write_text(text.replace(f'"{names[2]}"', f'"{names[2]}",\n  "{names[2]}x"'))
    for index in shards.glob("*.idx"):
        index.unlink()
    convert(shards, tmp_path / "out", "imagefolder")
    folder = torchvision.datasets.ImageFolder(str(tmp_path / "out"), allow_empty=True)
    assert folder.classes == sorted([*names, names[2] + "x"])
    assert set(folder.targets) == set(range(CLASSES)), "the last class has no image now"
