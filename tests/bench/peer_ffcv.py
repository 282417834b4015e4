"""Writes FFCV's file of a folder of classes, with the JPEG files' own bytes in it.

usage: peer_ffcv.py FOLDER OUT

FFCV's writer decodes and encodes anew; it is made to take the bytes as they are, so that all decode the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv.writer import DatasetWriter
from PIL import Image


class Files:
    def __init__(self, root: Path) -> None:
        classes = sorted(p for p in root.iterdir() if p.is_dir())
        self.files = [(path, label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Path, int]:
        return self.files[index]


def keep_bytes(_: RGBImageField, destination: Any, path: Path, malloc: Any) -> None:
    content = np.fromfile(path, dtype="<u1")
    destination["mode"] = IMAGE_MODES["jpg"]
    destination["width"], destination["height"] = Image.open(path).size
    destination["data_ptr"], storage = malloc(content.nbytes)
    storage[:] = content


def main() -> None:
    RGBImageField.encode = keep_bytes
    out = Path(sys.argv[2])
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = DatasetWriter(str(out), {"image": RGBImageField(write_mode="jpg"), "label": IntField()}, num_workers=2)
    writer.from_indexed_dataset(Files(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
