"""The peer of `./run bench train`: plain PyTorch in Python, as the field writes it.

usage: peer_train.py DATA SIZE BATCH THREADS WORKERS EPOCHS PRECISION

Trains torchvision's ResNet-18 on an ImageFolder through its DataLoader and prints, as JSON, the images per second
after the first epoch and the seconds from the program's start to the end of the first step.
"""

import time

BEGUN = time.time()

import json  # noqa: E402  what comes before the first step counts
import sys  # noqa: E402

import torch  # noqa: E402
from torchvision import datasets, models, transforms  # noqa: E402


def main() -> None:
    data, size, batch, threads, workers, epochs = sys.argv[1], *map(int, sys.argv[2:7])
    precision = sys.argv[7]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    transform = transforms.Compose([
        transforms.RandomResizedCrop(size, scale=(0.5, 1.0)), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])  # fmt: skip
    dataset = datasets.ImageFolder(data, transform)
    loader = torch.utils.data.DataLoader(dataset, batch, shuffle=True, num_workers=workers, drop_last=True,
                                         persistent_workers=True)  # fmt: skip
    model = models.resnet18(num_classes=len(dataset.classes)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=True)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    first_step, counted, since = 0.0, 0, 0.0
    for epoch in range(epochs):
        if epoch == 1:
            since = time.time()
        for images, labels in loader:
            images = images.contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            first_step = first_step or time.time() - BEGUN
            counted += len(labels) if epoch else 0
    print(json.dumps({"images_per_second": counted / (time.time() - since), "first_step_seconds": first_step}))


if __name__ == "__main__":
    main()
