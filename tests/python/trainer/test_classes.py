"""What is said of each class: the files of a run, TensorBoard's pictures, and `imgtrain eval --per-class`."""

from __future__ import annotations

import io
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from imgtrain_ranks import IMGTRAIN, Trainer, make_images
from PIL import Image
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torchvision.transforms import v2

SIZE = 48
CLASSES = [f"class{i}" for i in range(4)]


def by_torchvision(weights: Path, folder: Path) -> list[dict[str, Any]]:
    """Of each image its name, class, answer and loss, and whether the class is among five answers."""
    steps = [v2.Resize(SIZE), v2.CenterCrop(SIZE), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
             v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]  # fmt: skip
    data = torchvision.datasets.ImageFolder(folder, v2.Compose(steps))
    model = torchvision.models.resnet18(num_classes=len(data.classes))
    model.load_state_dict(load_file(weights))
    model.eval()
    found = []
    with torch.no_grad():
        for (path, label), (image, _) in zip(data.samples, data, strict=True):
            logits = model(image.unsqueeze(0))
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor([label])).item()
            best = logits[0].topk(min(5, len(data.classes))).indices.tolist()
            found.append({"image": str(Path(path).relative_to(folder)), "class": data.classes[label],
                          "answer": data.classes[best[0]], "among 5": label in best, "loss": loss})  # fmt: skip
    return found


def check(ours: dict[str, Any], truth: list[dict[str, Any]]) -> None:
    """That the figures of the classes are those of the images."""
    images = Counter(image["class"] for image in truth)
    right = Counter(image["class"] for image in truth if image["class"] == image["answer"])
    among_5 = Counter(image["class"] for image in truth if image["among 5"])
    for entry in ours["classes"]:
        name, count = entry["class"], images[entry["class"]]
        assert (entry["images"], entry["top1"], entry["top5"]) == (count, right[name] / count, among_5[name] / count)
    classes = sorted(images)
    assert sorted(entry["class"] for entry in ours["classes"]) == classes
    pairs = Counter((image["class"], image["answer"]) for image in truth)
    assert ours["confusion"] == [[pairs[label, answer] for answer in classes] for label in classes]
    mistakes = {(m["class"], m["answer"]): m["images"] for m in ours["mistakes"]}
    assert mistakes == {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
    worst = sorted(truth, key=lambda image: -image["loss"])
    assert [image["loss"] for image in ours["worst_images"]] == pytest.approx(
        [i["loss"] for i in worst], rel=1e-5, abs=1e-3
    )
    named = {image["image"]: image for image in worst}
    for image in ours["worst_images"]:
        theirs = named.pop(image["image"])
        assert (image["class"], image["answer"]) == (theirs["class"], theirs["answer"])
        assert 1 / len(classes) <= image["probability"] <= 1


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_runs_figures_of_each_class_are_exact_over_all_ranks(ranks: int, trainer: Trainer) -> None:
    trainer.run(ranks, data__val=trainer.val, data__val_size=SIZE, data__val_resize=SIZE, data__val_decode="exact",
                train__epochs=2)  # fmt: skip
    logs = trainer.checkpoints / "logs"
    assert {p.name for p in logs.glob("classes.*")} == {"classes.step5.json", "classes.step10.json"}
    ours = json.loads((logs / "classes.step10.json").read_text())
    assert (ours["step"], ours["epoch"]) == (10, 2)
    check(ours, by_torchvision(trainer.checkpoints / "g0" / "step10" / "model.safetensors", trainer.val))


def test_top_5_is_exact_where_there_are_more_classes(trainer: Trainer, tmp_path: Path) -> None:
    train = make_images(tmp_path / "train", per_class=3, classes=12)
    val = make_images(tmp_path / "val", per_class=3, classes=12, seed=2)
    run = trainer.run(2, data__train=train, data__val=val, data__val_size=SIZE, data__val_resize=SIZE,
                      data__val_decode="exact", train__epochs=1, schedule__warmup_epochs=0)  # fmt: skip
    (epoch,) = run.events("epoch")
    truth = by_torchvision(trainer.checkpoints / "g0" / f"step{epoch.step}" / "model.safetensors", val)
    assert epoch.val_top1 == sum(image["class"] == image["answer"] for image in truth) / 36
    assert epoch.val_top5 == sum(image["among 5"] for image in truth) / 36
    assert epoch.val_top1 < epoch.val_top5 < 1
    check(json.loads((trainer.checkpoints / "logs" / f"classes.step{epoch.step}.json").read_text()), truth)


def test_tensorboard_has_pictures_that_pillow_reads(trainer: Trainer) -> None:
    trainer.run(data__val=trainer.val, train__epochs=2)
    board = EventAccumulator(str(trainer.checkpoints / "logs"), size_guidance={"images": 0})
    board.Reload()
    assert set(board.Tags()["images"]) == {"train/samples", "val/confusion_matrix"}

    samples = board.Images("train/samples")
    assert [event.step for event in samples] == [1, 6], "the first step of each epoch"
    image = Image.open(io.BytesIO(samples[0].encoded_image_string))
    image.load()
    assert (image.format, image.size) == ("JPEG", (samples[0].width, samples[0].height))
    # Eight images of 32 pixels, four times as large, over two lines of words each.
    assert image.size == (4 * 134, 2 * 154)
    below = image.convert("L").crop((0, 130, 128, 137))
    assert any(below.histogram()[:80]), "the label is written"
    answers = [image.convert("L").crop((134 * column, 140, 134 * column + 128, 147)) for column in range(4)]
    assert all(any(answer.histogram()[:120]) for answer in answers), "so is each answer, in green or red"
    assert len({image.getpixel((4 * x + 2, 60)) for x in range(32)}) > 10, "there is a picture"

    matrices = board.Images("val/confusion_matrix")
    assert [event.step for event in matrices] == [5, 10]
    matrix = Image.open(io.BytesIO(matrices[1].encoded_image_string)).convert("L")
    assert matrix.size == (512, 512)
    counts = json.loads((trainer.checkpoints / "logs" / "classes.step10.json").read_text())["confusion"]
    for label, row in enumerate(counts):
        # The more of a class's images, the darker.
        shades = [matrix.getpixel((128 * answer + 64, 128 * label + 64)) for answer in range(4)]
        assert [shade == 255 for shade in shades] == [count == 0 for count in row]
        assert sorted(range(4), key=lambda i: (-row[i], i)) == sorted(range(4), key=lambda i: (shades[i], i))


def test_mixed_images_and_several_parts_of_a_batch_are_shown_too(trainer: Trainer) -> None:
    trainer.run(augment__mixup=0.4, train__accumulate=4, train__max_steps=2)
    board = EventAccumulator(str(trainer.checkpoints / "logs"), size_guidance={"images": 0})
    board.Reload()
    (event,) = board.Images("train/samples")
    assert Image.open(io.BytesIO(event.encoded_image_string)).size == (4 * 134, 154)


def test_eval_says_how_often_each_class_is_right(trainer: Trainer) -> None:
    trainer.run(data__val=trainer.val, train__epochs=1, schedule__warmup_epochs=0)
    weights = trainer.checkpoints / "g0" / "step5" / "model.safetensors"
    command: list[str | Path] = [IMGTRAIN, "eval", weights, trainer.val, "--per-class",
                                 "--set", f"data.val_size={SIZE}", "--set", f"data.val_resize={SIZE}", "--set",
                                 "data.val_decode=exact"]  # fmt: skip
    truth = by_torchvision(weights, trainer.val)
    done = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    check(json.loads(done.stdout)["classes"], truth)

    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[0].split() == ["class", "images", "top-1", "top-5"]
    rows = [line.split() for line in lines[1:5]]
    assert sorted(row[0] for row in rows) == CLASSES
    shares = [float(row[2]) for row in rows]
    assert shares == sorted(shares)
    right = sum(image["class"] == image["answer"] for image in truth)
    assert f"top-1 {100 * right / len(truth):.3f} %" in lines[-1]
