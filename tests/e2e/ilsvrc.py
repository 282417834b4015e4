"""A miniature ILSVRC2012 as it is downloaded: nested tars, a development kit, dirty images."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from pathlib import Path

from PIL import Image

# Sorted WNIDs, and the ids that the development kit gives them: in another order, as in the real one.
WNIDS = ["n01440764", "n02077923", "n03126707", "n04596742"]
IDS = {"n01440764": 3, "n02077923": 1, "n03126707": 4, "n04596742": 2}


def element(kind: int, data: bytes) -> bytes:
    """An element of a MATLAB 5 file: tag, content, padding to 8 bytes."""
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def matrix(array_class: int, dims: list[int], name: bytes, rest: bytes) -> bytes:
    flags = element(6, struct.pack("<II", array_class, 0))
    sizes = element(5, struct.pack(f"<{len(dims)}i", *dims))
    return element(14, flags + sizes + element(1, name) + rest)


def text(value: str) -> bytes:
    return matrix(4, [1, len(value)], b"", element(4, value.encode("utf-16-le")))


def number(value: float) -> bytes:
    return matrix(6, [1, 1], b"", element(9, struct.pack("<d", value)))


def meta_mat() -> bytes:
    """`synsets` as in the real meta.mat: a compressed array of structs, one of which has children."""
    fields = ["ILSVRC2012_ID", "WNID", "words", "gloss", "num_children"]
    rows = [(IDS[w], w, f"words of {w}", "a gloss", 0) for w in sorted(WNIDS, key=lambda w: IDS[w])]
    rows.append((5, "n00001740", "entity", "that which is", 3))
    names = b"".join(f.encode().ljust(32, b"\0") for f in fields)
    cells = b"".join(text(v) if isinstance(v, str) else number(v) for row in rows for v in row)
    body = element(5, struct.pack("<i", 32)) + element(1, names) + cells
    packed = zlib.compress(matrix(2, [len(rows), 1], b"synsets", body))
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    return header + struct.pack("<II", 15, len(packed)) + packed


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def as_format(jpeg: bytes, form: str, mode: str) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(jpeg)).convert(mode).save(out, form)
    return out.getvalue()


def write_ilsvrc(folder: Path, images: Path, dirty: bool = True) -> list[str]:
    """Writes the archives into `folder`, of the classes of `images` (train/ and val/ with one folder for each class).

    If `dirty`, among the training images are a PNG called JPEG, a CMYK JPEG and a cut one. Returns the WNID of each
    validation image, in the order of their names.
    """
    folder.mkdir(parents=True)
    inner = {}
    for wnid, source in zip(WNIDS, sorted((images / "train").iterdir()), strict=True):
        files = {f"{wnid}_{i}.JPEG": p.read_bytes() for i, p in enumerate(sorted(source.iterdir()))}
        if dirty and wnid == "n02077923":
            files[f"{wnid}_1.JPEG"] = as_format(files[f"{wnid}_1.JPEG"], "JPEG", "CMYK")
            files[f"{wnid}_2.JPEG"] = as_format(files[f"{wnid}_2.JPEG"], "PNG", "RGB")
            files[f"{wnid}_3.JPEG"] = files[f"{wnid}_3.JPEG"][:700]
        inner[f"{wnid}.tar"] = tar_of(files)
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar_of(dict(reversed(inner.items()))))
    val = [(w, p) for w, source in zip(WNIDS, sorted((images / "val").iterdir()), strict=True)
           for p in sorted(source.iterdir())]  # fmt: skip
    val = val[1::2] + val[::2]
    names = {f"ILSVRC2012_val_{i + 1:08}.JPEG": p.read_bytes() for i, (_, p) in enumerate(val)}
    (folder / "ILSVRC2012_img_val.tar").write_bytes(tar_of(dict(reversed(names.items()))))
    truth = "".join(f"{IDS[w]}\n" for w, _ in val)
    kit = {"ILSVRC2012_devkit_t12/data/meta.mat": meta_mat(),
           "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": truth.encode()}  # fmt: skip
    gz = zlib.compressobj(wbits=31)
    (folder / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(gz.compress(tar_of(kit)) + gz.flush())
    return [w for w, _ in val]
