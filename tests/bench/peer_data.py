"""The peers of `./run bench data`: each as its users write it, to ready uint8 [64, 224, 224, 3] batches.

usage: peer_data.py SUBJECT SET WORKERS

SET is a folder of classes, or for webdataset and ffcv what was made of it. For each line "SECONDS LEAST_IMAGES" of the
input makes one pass and prints a line of JSON, like loader_bench's; between them it idles, so that passes can take
turns without paying for imports and compilation each time. Rates are of a pipeline that is full and stays so: the
stream goes on over the ends of epochs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE, BATCH, WARM_UP = 224, 64, 8
Batches = Iterable[tuple[Any, Any]]


def torchvision(where: str, workers: int, draft: bool) -> Batches:
    """ImageFolder, RandomResizedCrop and flip in a DataLoader; batches are stacked by its own collate function."""
    import torch
    from PIL import Image
    from torchvision import datasets, transforms

    class Endless(torch.utils.data.Sampler[int]):
        def __init__(self, count: int) -> None:
            self.count = count

        def __iter__(self) -> Iterator[int]:
            while True:
                yield from torch.randperm(self.count).tolist()

    def open_crop(path: str) -> Image.Image:
        """PIL's draft mode lets libjpeg shrink by 2, 4 or 8; asked for where the crop stays as large as SIZE."""
        image = Image.open(path)
        width, height = image.size
        top, left, h, w = transforms.RandomResizedCrop.get_params(
            torch.empty((1, height, width)), [0.08, 1.0], [3 / 4, 4 / 3]
        )
        least = min(h, w) / SIZE
        if least >= 2:
            image.draft("RGB", (int(width / least) + 1, int(height / least) + 1))
        sx, sy = image.size[0] / width, image.size[1] / height
        box = (left * sx, top * sy, (left + w) * sx, (top + h) * sy)
        return image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)

    flip = transforms.RandomHorizontalFlip()
    crop = transforms.RandomResizedCrop(SIZE)
    if draft:
        dataset = datasets.ImageFolder(where, lambda image: np.asarray(flip(image)), loader=open_crop)
    else:
        dataset = datasets.ImageFolder(where, lambda image: np.asarray(flip(crop(image))))
    return torch.utils.data.DataLoader(dataset, BATCH, sampler=Endless(len(dataset)), num_workers=workers)


def dali(where: str, workers: int, fast_idct: bool) -> Batches:
    """File reader, fused decode of random crops, resize and flip: DALI's own ImageNet pipeline up to normalising."""
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None, seed=1)
    def pipeline() -> tuple[Any, Any]:
        files, labels = fn.readers.file(file_root=where, random_shuffle=True, initial_fill=1024)
        images = fn.decoders.image_random_crop(
            files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], use_fast_idct=fast_idct
        )
        images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.flip(images, horizontal=fn.random.coin_flip()), labels

    pipe = pipeline()
    pipe.build()
    while True:
        images, labels = pipe.run()
        yield images.as_tensor(), labels.as_tensor()


def webdataset(where: str, workers: int) -> Batches:
    """Tar shards through the webdataset library: PIL decodes, torchvision crops, WebLoader's workers batch."""
    import torch
    import webdataset as wds
    from torchvision import transforms

    crop = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), np.asarray])

    def stack(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
        return torch.from_numpy(np.stack([s[0] for s in samples])), torch.tensor([s[1] for s in samples])

    shards = sorted(str(p) for p in Path(where).glob("*.tar"))
    dataset = (
        wds.WebDataset(shards, shardshuffle=len(shards), workersplitter=wds.split_by_worker)
        .repeat()
        .shuffle(500)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(crop, lambda label: label)
        .batched(BATCH, collation_fn=stack, partial=False)
    )
    return wds.WebLoader(dataset, batch_size=None, num_workers=workers)


def ffcv(where: str, workers: int) -> Batches:
    """FFCV's own file with the JPEG files as they are, decoded whole and cropped by its RandomResizedCrop."""
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor

    loader = Loader(
        where,
        batch_size=BATCH,
        num_workers=workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={
            "image": [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip(), ToTensor()],
            "label": [IntDecoder(), ToTensor()],
        },
    )
    while True:
        yield from loader


def tree(root: int) -> list[int]:
    """The process and all below it."""
    out, at = [root], 0
    while at < len(out):
        for path in Path(f"/proc/{out[at]}/task").glob("*/children"):
            out += [int(child) for child in path.read_text().split()]
        at += 1
    return out


def memory_mib(file: str, key: str) -> float:
    """A figure of the kernel's, over this process and all below it."""
    total = 0
    for pid in tree(os.getpid()):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(key):
                total += int(line.split()[1])
    return total / 1024


SUBJECTS = {
    "torchvision": lambda where, workers: torchvision(where, workers, draft=False),
    "torchvision-draft": lambda where, workers: torchvision(where, workers, draft=True),
    "dali": lambda where, workers: dali(where, workers, fast_idct=False),
    "dali-fast-idct": lambda where, workers: dali(where, workers, fast_idct=True),
    "webdataset": webdataset,
    "ffcv": ffcv,
}


def as_array(value: Any) -> NDArray[Any]:
    return np.asarray(value)


def one_pass(batches: Iterator[tuple[Any, Any]], seconds: float, least_images: int) -> dict[str, Any]:
    """What came before the pass is not timed: WARM_UP batches, so that none was made while nobody measured."""
    means: list[float] = []
    order: list[int] = []
    for _ in range(WARM_UP):
        pixels, labels = (as_array(part) for part in next(batches))
        if pixels.shape != (BATCH, SIZE, SIZE, 3) or pixels.dtype != np.uint8:
            raise SystemExit(f"a batch is {pixels.shape} of {pixels.dtype}")
        means.append(float(pixels.mean()))
        order += labels.reshape(-1).astype(int).tolist()
    next(batches)
    start, images = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or images < least_images:
        next(batches)
        images += BATCH
    took = time.perf_counter() - start
    return {
        "images": images,
        "seconds": took,
        "images_per_second": images / took,
        "pixel_mean": round(float(np.mean(means)), 3),
        "label_mean": round(float(np.mean(order)), 3),
        "label_order": f"{zlib.crc32(np.asarray(order, '<i4').tobytes()):08x}",
        "peak_rss_mib": round(memory_mib("status", "VmHWM:"), 1),
        "pss_mib": round(memory_mib("smaps_rollup", "Pss:"), 1),
    }


def main() -> None:
    subject, where, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    random.seed(1)
    batches = iter(SUBJECTS[subject](where, workers))
    try:
        for line in sys.stdin:
            seconds, least_images = line.split()
            print(json.dumps(one_pass(batches, float(seconds), int(least_images))), flush=True)
    finally:
        # The workers' endless streams have no end to wait for, and must not slow what is measured next.
        for pid in tree(os.getpid())[1:]:
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
