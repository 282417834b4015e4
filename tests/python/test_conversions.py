"""What convert writes, read by software that is not ours: each form by its own world's library.

The table of every pair is printed (`pytest -s`) and written to build/log/conversions.md.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np
import PIL.Image
import pytest
import torchvision
import webdataset
from ilsvrc import WNIDS, write_ilsvrc

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


def read_ilsvrc(folder: Path, truth: list[str]) -> list[Image]:
    """The original archives; `truth` has the WNIDs of the validation images in the order of their names."""
    found = []
    with tarfile.open(folder / "ILSVRC2012_img_train.tar") as outer:
        for member in outer:
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                label = WNIDS.index(member.name.removesuffix(".tar"))
                found += [image(one.name, label, inner.extractfile(one).read()) for one in inner]
    with tarfile.open(folder / "ILSVRC2012_img_val.tar") as val:
        for wnid, name in zip(truth, sorted(val.getnames()), strict=True):
            found.append(image(name, WNIDS.index(wnid), val.extractfile(name).read()))
    return found


# In a process of its own: the package's generated code needs protobuf's slow implementation, chosen at its import;
# and with a new protobuf its loader takes the map of features for a list, so that only its lower half is used.
TFRECORD_READER = """
import pickle, sys, types
sys.modules["tfrecord.torch"] = types.ModuleType("tfrecord.torch")  # or it would import all of torch
from tfrecord import example_pb2, reader

def value(key, feature):
    values = list(getattr(feature, feature.WhichOneof("kind")).value)
    if key.startswith("image/object/"):
        return values
    (only,) = values
    return only

def features(record):
    example = example_pb2.Example.FromString(bytes(record))
    return {entry.key: value(entry.key, entry.value) for entry in example.features.feature}

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
            assert "/" not in name or name.startswith(synset + "/")
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
READER = {"ilsvrc2012": "tarfile", "recordio": "struct, by recordio.h",
          "imagefolder": f"torchvision {version('torchvision')}"}  # fmt: skip
READER |= {name: f"{name} {version(name)}" for name in ("webdataset", "tfrecord")}


def convert(source: Path, out: Path, form: str, *options: str) -> str:
    sharded = () if form == "imagefolder" or "--shards" in options else ("--shards", "3")
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


def digest(found: list[Any]) -> str:
    """Of what was found, in whatever order."""
    return hashlib.sha256("\n".join(sorted(map(repr, found))).encode()).hexdigest()[:16]


class Table:
    """A row for each pair of forms: what was there before, and what after."""

    def __init__(self) -> None:
        self.rows = ["| from | to | images | after | boxes | after | checksum | after | read by |", "| --- " * 9 + "|"]

    def add(self, forms: tuple[str, str], images: tuple[Any, Any], boxes: tuple[Any, Any] = ((), ())) -> None:
        counts = [len(found) for found in images] + [len(found) or "" for found in boxes]
        sums = [digest([*found, *more]) for found, more in zip(images, boxes, strict=True)]
        cells = [*forms, *counts, *sums, f"{READER[forms[0]]}; {READER[forms[1]]}"]
        self.rows.append("| " + " | ".join(map(str, cells)) + " |")


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table()
    yield table
    text = "\n".join(table.rows) + "\n"
    print("\n" + text)
    path = ROOT / "build/log/conversions.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The drawn set in each form."""
    root = tmp_path_factory.mktemp("forms")
    for form in FORMS:
        convert(source, root / form, form)
    return {form: root / form for form in FORMS}


class Box(NamedTuple):
    """Of an object in an image, in shares of its sides, as exactly as 32 bits hold them."""

    key: str
    label: int
    edges: tuple[float, ...]  # xmin, ymin, xmax, ymax

    @classmethod
    def of(cls, key: str, label: int, edges: Iterable[float]) -> Box:
        return cls(key, label, tuple(round(edge, 6) for edge in edges))


class Ilsvrc(NamedTuple):
    folder: Path
    images: list[Image]
    boxes: list[Box]
    boxes_archive: Path


def annotation(pixels: list[tuple[int, ...]], wnid: str) -> bytes:
    edges = ("xmin", "ymin", "xmax", "ymax")
    objects = ["".join(f"<{e}>{p}</{e}>" for e, p in zip(edges, box, strict=True)) for box in pixels]
    objects = [f"<object><name>{wnid}</name><bndbox>{text}</bndbox></object>" for text in objects]
    size = "<size><width>64</width><height>48</height><depth>3</depth></size>"
    return f"<annotation><filename>%s</filename>{size}{''.join(objects)}</annotation>".encode()


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Ilsvrc:
    """A small ILSVRC2012, with none, one or two boxes for each image."""
    root = tmp_path_factory.mktemp("ilsvrc")
    command = [BIN / "imgcli", "dataset", "synth", "--classes", str(len(WNIDS)), "--per-class", "8",
               "--val-per-class", "3", "--size", "64x48", root / "drawn"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    folder, boxes = root / "archives", []
    images = read_ilsvrc(folder, write_ilsvrc(folder, root / "drawn", dirty=False))
    with tarfile.open(root / "boxes.tar.gz", "w:gz") as tar:
        for i, one in enumerate(images):
            pixels = [(2 + i % 20, 3, 40, 20 + k) for k in range(i % 3)]
            boxes += [Box.of(one.key, one.label, (x / 64, y / 48, x2 / 64, y2 / 48)) for x, y, x2, y2 in pixels]
            xml = annotation(pixels, WNIDS[one.label])
            info = tarfile.TarInfo(f"{WNIDS[one.label]}/{one.key}.xml")
            info.size = len(xml)
            tar.addfile(info, io.BytesIO(xml))
    return Ilsvrc(folder, images, boxes, root / "boxes.tar.gz")


def boxes_in(shards: list[Path]) -> list[Box]:
    found = []
    for r in itertools.chain.from_iterable(tfrecord_examples(shards)):
        key = Path(r["image/filename"].decode()).stem
        columns = [r[f"image/object/bbox/{column}"] for column in ("label", "xmin", "ymin", "xmax", "ymax")]
        for label, *edges in zip(*columns, strict=True):
            found.append(Box.of(key, label - 1, edges))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_pairs_from_the_original_archives(archives: Ilsvrc, tmp_path: Path, table: Table, form: str) -> None:
    with_boxes = ("--boxes", str(archives.boxes_archive)) if form == "tfrecord" else ()
    convert(archives.folder, tmp_path / "out", form, "--from", "ilsvrc2012", *with_boxes)
    parts = [tmp_path / "out/train", tmp_path / "out/val"]
    after = [i._replace(key=Path(i.key).name) for part in parts for i in READ[form](part)]
    boxes, boxes_after = [], []
    if with_boxes:  # no other form has a place for them
        boxes, boxes_after = archives.boxes, boxes_in([p for part in parts for p in sorted(part.glob("*-of-*"))])
    table.add(("ilsvrc2012", form), (archives.images, after), (boxes, boxes_after))
    assert len(after) == len(WNIDS) * (8 + 3)
    assert sorted(after) == sorted(archives.images)
    assert sorted(boxes_after) == sorted(boxes)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(FORMS, FORMS)))
def test_every_pair_keeps_names_labels_and_bytes(
    source: Path, made: dict[str, Path], tmp_path: Path, table: Table, first: str, second: str
) -> None:
    wanted = read_imagefolder(source)
    before = READ[first](made[first])
    convert(made[first], tmp_path / "out", second, "--from", first)
    after = READ[second](tmp_path / "out")
    table.add((first, second), (before, after))
    assert len(after) == CLASSES * PER_CLASS
    assert sorted(before) == sorted(wanted)
    assert sorted(after) == sorted(wanted)


def files_in(folder: Path) -> dict[str, str]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bytes_each_time_and_at_any_jobs(source: Path, tmp_path: Path, form: str) -> None:
    for name, jobs in (("one", "1"), ("three", "3"), ("again", "3")):
        convert(source, tmp_path / name, form, "--jobs", jobs, "--resize", "40")
    assert len(files_in(tmp_path / "one")) > 3
    assert files_in(tmp_path / "three") == files_in(tmp_path / "again") == files_in(tmp_path / "one")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that take their time."""
    out = tmp_path_factory.mktemp("photos") / "set"
    command = [BIN / "imgcli", "dataset", "synth", "--classes", "4", "--per-class", "40", "--val-per-class", "0",
               "--size", "500x375", out]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return out / "train"


def is_half_done(out: Path, form: str) -> bool:
    """Some shards are finished and others begun; an ImageFolder of this size has no parts that count."""
    if form == "imagefolder":
        return (out / ".convert.json").exists() and len(list(out.glob("*/*.jp*g"))) > 20
    return any(out.glob(".*.done")) and any(out.glob("*.tmp"))


def kill_half_done(command: list[Path | str], out: Path, form: str) -> None:
    """On a busy machine the moment may pass unseen; then it is begun anew."""
    for _ in range(20):
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and not is_half_done(out, form):
            time.sleep(0.002)
        process.kill()
        process.wait()
        if is_half_done(out, form):
            return
    raise AssertionError("it was killed too late")


@pytest.mark.parametrize("form", FORMS)
def test_a_conversion_that_was_killed_is_gone_on_with(photos: Path, tmp_path: Path, form: str) -> None:
    options = ("--resize", "300")
    sharded = () if form == "imagefolder" else ("--shards", "6")
    command = [BIN / "imgcli", "dataset", "convert", "--to", form, *sharded, *options]
    whole, out = tmp_path / "whole", tmp_path / "out"
    subprocess.run([*command, "--jobs", "1", photos, whole], check=True, capture_output=True)
    kill_half_done([*command, "--jobs", "3", photos, out], out, form)
    finished = [out / p.name[1 : -len(".done")] for p in out.glob(".*.done")]
    times = [p.stat().st_mtime_ns for p in finished]
    said = subprocess.run([*command, "--jobs", "2", photos, out], check=True, capture_output=True, text=True).stdout
    assert files_in(out) == files_in(whole)
    if form != "imagefolder":
        assert f"{len(finished)} of 6 shards were there already" in said, said
        assert [p.stat().st_mtime_ns for p in finished] == times


def test_long_names_are_in_pax_headers(source: Path, tmp_path: Path) -> None:
    long = "n" * 180
    folder = tmp_path / "set" / "c0"
    folder.mkdir(parents=True)
    shutil.copy(min(source.rglob("*.jp*g")), folder / f"{long}.jpg")
    shutil.copy(min(source.rglob("*.jp*g")), folder / "a.jpg")
    convert(tmp_path / "set", tmp_path / "out", "webdataset", "--shards", "1")
    with tarfile.open(tmp_path / "out" / "train-000000.tar") as archive:
        names = set(archive.getnames())
    assert names == {f"c0/{long}.jpg", f"c0/{long}.cls", "c0/a.jpg", "c0/a.cls"}
    assert sorted(read_webdataset(tmp_path / "out")) == sorted(read_imagefolder(tmp_path / "set"))


def test_labels_can_begin_at_zero(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", "tfrecord", "--label-offset", "0")
    shards = tfrecord_examples(sorted((tmp_path / "out").glob("*-of-*")))
    labels = [r["image/class/label"] for records in shards for r in records]
    assert set(labels) == set(range(CLASSES))


def png(colours: int, depth: int, pixels: np.ndarray[Any, Any], *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG byte by byte: PIL writes neither gAMA nor 16 bits a colour."""
    rows = pixels.astype(">u2" if depth == 16 else "u1")
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    out = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")):
        out += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return out


def dirty_images() -> dict[str, bytes]:
    """What training can't or shouldn't read as it is, each of a smooth picture of its own kind."""
    y, x = np.mgrid[0:48, 0:64]
    rgb = np.stack([x * 3 + 30, y * 4 + 20, 220 - x - y * 2], axis=-1).astype(np.uint8)
    alpha = (x * 4).astype(np.uint8)[..., None]
    linear = (b"gAMA", struct.pack(">I", 100000))
    palette = bytes(v for i in range(64) for v in (i * 4, 255 - i * 3, 40 + i))
    saved = io.BytesIO()
    PIL.Image.fromarray(rgb).convert("CMYK").save(saved, "JPEG", quality=95)
    cmyk = saved.getvalue()
    ycck = bytearray(cmyk)
    ycck[cmyk.index(b"Adobe") + 11] = 2  # its transform: the same planes are Y, Cb, Cr and K
    return {
        "cmyk": cmyk,
        "ycck": bytes(ycck),
        "rgb": png(2, 8, rgb),
        "gamma": png(2, 8, rgb, linear),
        "alpha": png(6, 8, np.concatenate([rgb, alpha], axis=-1), linear),
        "grey-alpha": png(4, 8, np.concatenate([rgb[..., :1], alpha], axis=-1)),
        "deep": png(2, 16, rgb.astype(np.uint16) * 256 + 200),
        "deep-alpha": png(6, 16, np.concatenate([rgb, alpha], axis=-1).astype(np.uint16) * 256 + 99, linear),
        "palette": png(3, 8, x, linear, (b"PLTE", palette), (b"tRNS", bytes(range(64)))),
    }


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_what_is_repaired_has_the_colours_that_pil_gives_it(tmp_path: Path) -> None:
    images = dirty_images()
    (tmp_path / "set" / "a").mkdir(parents=True)
    for name, content in images.items():
        (tmp_path / "set" / "a" / f"{name}.JPEG").write_bytes(content)
    convert(tmp_path / "set", tmp_path / "out", "imagefolder", "--quality", "97")
    for name, content in images.items():
        wanted = np.asarray(PIL.Image.open(io.BytesIO(content)).convert("RGB"), dtype=float)
        with PIL.Image.open(tmp_path / "out" / "a" / f"{name}.JPEG") as made:
            assert (made.format, made.mode) == ("JPEG", "RGB")
            difference = np.abs(np.asarray(made, dtype=float) - wanted).mean()
        assert difference < 3, f"{name}: {difference:.1f} from PIL's colours"


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
