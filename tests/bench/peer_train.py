"""The peer of `./run bench train`: plain PyTorch in Python, as the field writes it.

Trains one of torchvision's models on an ImageFolder through its DataLoader, or on one batch that lies in memory; under
torchrun's environment with DistributedDataParallel where there are several ranks. Prints, as JSON, the images per
second of all ranks, and the seconds from the program's start to the end of the first step.
"""

import time

BEGUN = time.time()

import argparse  # noqa: E402  what comes before the first step counts
import itertools  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from collections.abc import Iterator  # noqa: E402

import torch  # noqa: E402
from torchvision import datasets, models, transforms  # noqa: E402

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="an ImageFolder; a batch in memory without it")
    parser.add_argument("--model", required=True)
    for name in ("size", "batch", "threads", "warm-up", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True, help="warm-up: steps that are not timed")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--profile", help="where a trace of the first steps after the warm-up goes")
    parser.add_argument("--profile-steps", type=int, default=5)
    return parser.parse_args()


def batches(asked: argparse.Namespace) -> tuple[Iterator[tuple[torch.Tensor, torch.Tensor]], int]:
    """Batches without end, and the number of classes."""
    if not asked.data:
        images = torch.randn(asked.batch, 3, asked.size, asked.size).contiguous(memory_format=torch.channels_last)
        images, labels = images.to(asked.device), torch.randint(1000, (asked.batch,)).to(asked.device)
        return iter(lambda: (images, labels), None), 1000
    transform = transforms.Compose([
        transforms.RandomResizedCrop(asked.size, scale=(0.5, 1.0)), transforms.RandomHorizontalFlip(),
        transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])  # fmt: skip
    dataset = datasets.ImageFolder(asked.data, transform)
    parts = torch.utils.data.DistributedSampler(dataset, WORLD_SIZE, RANK)
    sampler = parts if WORLD_SIZE > 1 else None
    loader = torch.utils.data.DataLoader(dataset, asked.batch, shuffle=sampler is None, sampler=sampler,
                                         num_workers=asked.workers, drop_last=True, pin_memory=asked.device == "cuda",
                                         persistent_workers=asked.workers > 0)  # fmt: skip

    def endless() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for epoch in itertools.count():
            if sampler:
                sampler.set_epoch(epoch)
            yield from loader

    return endless(), len(dataset.classes)


def finish_queue(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    asked = parse()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    endless, classes = batches(asked)
    torch.backends.cudnn.benchmark = True
    model: torch.nn.Module = models.get_model(asked.model, num_classes=classes)
    model = model.to(asked.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if asked.compile:
        model.compile()
    if WORLD_SIZE > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=True)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    first_step, since = 0.0, 0.0
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) if asked.profile else None
    for step in range(asked.warm_up + asked.steps):
        if step == asked.warm_up:
            finish_queue(asked.device)
            since = time.time()
            if profiler:
                profiler.start()
        images, labels = (tensor.to(asked.device, non_blocking=True) for tensor in next(endless))
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(asked.device, torch.bfloat16, enabled=asked.precision == "bf16"):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if first_step == 0:
            finish_queue(asked.device)
            first_step = time.time() - BEGUN
        if profiler and step + 1 == asked.warm_up + asked.profile_steps:
            finish_queue(asked.device)
            profiler.stop()
            profiler.export_chrome_trace(asked.profile)
    finish_queue(asked.device)
    rate = asked.steps * asked.batch * WORLD_SIZE / (time.time() - since)
    if RANK == 0:
        print(json.dumps({"images_per_second": rate, "first_step_seconds": first_step}))


if __name__ == "__main__":
    main()
