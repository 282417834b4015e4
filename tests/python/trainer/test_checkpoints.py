"""Which checkpoints stay, what they say of where they come from, and what imgcli makes of them for Python."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from imgtrain_ranks import BIN, IMGTRAIN, REPO, Trainer
from safetensors import safe_open
from safetensors.torch import load_file


def imgcli(*arguments: str | Path) -> str:
    done = subprocess.run([BIN / "imgcli", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def steps_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("g*/*")}


def metadata_of(file: Path) -> dict[str, str]:
    with safe_open(file, "pt") as content:
        return dict(content.metadata())


@pytest.mark.long
def test_the_newest_the_best_and_every_nth_stay(trainer: Trainer) -> None:
    # 72 images in steps of 24: an epoch has three.
    settings: dict[str, Any] = {
        "train__global_batch": 24,
        "data__val": trainer.val,
        "checkpoint__keep": 1,
        "checkpoint__keep_best": 1,
        "checkpoint__keep_every_epochs": 2,
    }
    run = trainer.run(train__epochs=5, **settings)
    # As a kill leaves it.
    (trainer.checkpoints / "g0/step99").mkdir()
    scores = [(event.val_top1, event.step) for event in run.events("epoch")]
    assert len(scores) == 5
    best = max(scores)[1]
    assert steps_in(trainer.checkpoints) == {"step6", "step12", "step15", "step99", f"step{best}"}
    # A later generation removes what is left over.
    trainer.run(train__epochs=6, env={"IMGD_GENERATION": "1"}, **settings)
    assert "step99" not in steps_in(trainer.checkpoints)
    assert (trainer.checkpoints / "g1/step18").exists()
    assert not (trainer.checkpoints / "g0/step15").exists() or best == 15


def test_a_result_that_comes_late_is_put_beside_the_checkpoint_it_is_of(trainer: Trainer) -> None:
    """As after a kill in mid-validation."""
    trainer.run(train__max_steps=2)
    run = trainer.run(train__max_steps=2, data__val=trainer.val, env={"IMGD_GENERATION": "1"})
    listed = json.loads(imgcli("checkpoints", trainer.checkpoints, "-o", "json"))
    assert [(c["generation"], c["step"]) for c in listed] == [(0, 2)]
    assert listed[0]["validation"]["top1"] == pytest.approx(run.events("epoch")[0].val_top1)


def test_a_pinned_one_stays(trainer: Trainer) -> None:
    settings: dict[str, Any] = {"checkpoint__every_steps": 1, "checkpoint__keep": 1}
    trainer.run(train__max_steps=1, **settings)
    imgcli("checkpoints", "pin", f"{trainer.checkpoints}:1")
    trainer.run(train__max_steps=3, **settings)
    assert steps_in(trainer.checkpoints) == {"step1", "step3"}
    listed = json.loads(imgcli("checkpoints", trainer.checkpoints, "-o", "json"))
    assert [(c["step"], c["pinned"]) for c in listed] == [(3, False), (1, True)]


def test_a_checkpoint_says_where_it_comes_from(trainer: Trainer) -> None:
    run = trainer.run(train__max_steps=2, data__val=trainer.val,
                      env={"IMGD_JOB_ID": "12", "IMGD_GENERATION": "3"})  # fmt: skip
    folder = trainer.checkpoints / "g3/step2"
    lineage = json.loads((folder / "lineage.json").read_text())
    assert lineage["job"] == {"id": 12, "name": "test"}
    assert (lineage["generation"], lineage["step"], lineage["world_size"]) == (3, 2, 1)
    assert lineage["model"] == {
        "name": "resnet18", "classes": 4, "deep_stem": False, "average_shortcut": False, "blurpool": False,
    }  # fmt: skip
    assert lineage["data"]["train"]["images"] == 72
    assert lineage["data"]["train"]["checksum"].startswith("sha256:")
    assert lineage["data"]["val"]["images"] == 27
    assert lineage["program"]["libtorch"] == torch.__version__.split("+")[0]
    version = subprocess.run([IMGTRAIN, "--version"], capture_output=True, text=True).stdout.split()
    assert lineage["program"]["version"] == version[-1]
    if (REPO / ".git").exists():
        assert re.fullmatch("[0-9a-f]{12}(-dirty)?", lineage["program"]["commit"]), lineage["program"]
    assert lineage["configuration"] == Path(run.folder.parent / "job0.yaml").read_text()
    names = {file["name"] for file in json.loads((folder / "manifest.json").read_text())["files"]}
    assert "lineage.json" in names


@pytest.mark.long
def test_the_checksum_of_a_set_follows_names_labels_and_sizes(trainer: Trainer) -> None:
    def checksum() -> str:
        trainer.checkpoints = trainer.checkpoints.parent / f"run{len(trainer.started)}"
        trainer.run(train__max_steps=1)
        lineage = json.loads((trainer.checkpoints / "g0/step1/lineage.json").read_text())
        return str(lineage["data"]["train"]["checksum"])

    copy = trainer.tmp_path / "copy"
    subprocess.run(["cp", "-r", trainer.settings["data.train"], copy], check=True)
    before = checksum()
    trainer.settings["data.train"] = copy
    assert checksum() == before, "the same images elsewhere"
    image = copy / "class1/003.jpg"
    image.write_bytes(image.read_bytes() + b"\0")
    changed = checksum()
    assert changed != before
    image.rename(copy / "class1/003b.jpg")
    assert checksum() not in (before, changed)


def test_resuming_from_a_checkpoint_without_a_lineage_works(trainer: Trainer) -> None:
    """As those of an earlier version are."""
    trainer.run(train__max_steps=2)
    folder = trainer.checkpoints / "g0/step2"
    (folder / "lineage.json").unlink()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = [file for file in manifest["files"] if file["name"] != "lineage.json"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    imgcli("export", folder, "--to", "torch", "-o", trainer.tmp_path / "old.pth")
    assert len(torch.load(trainer.tmp_path / "old.pth", weights_only=True)) == 122
    rest = trainer.run(train__max_steps=3)
    assert rest.events("started")[0].start_step == 2


def test_exported_weights_load_strictly_in_torchvision(trainer: Trainer, tmp_path: Path) -> None:
    trainer.run(train__max_steps=2, ema__decay=0.5)
    plain = load_file(trainer.checkpoints / "g0/step2/model.safetensors")
    average = load_file(trainer.checkpoints / "g0/step2/ema.safetensors")
    model = torchvision.models.resnet18(num_classes=4)
    for suffix, form in (("pth", "torch"), ("safetensors", "safetensors")):
        for option, expected in (("--ema", average), ("--no-ema", plain)):
            file = tmp_path / f"weights{option}.{suffix}"
            imgcli("export", trainer.checkpoints, "--to", form, option, "-o", file)
            loaded = torch.load(file, weights_only=True) if suffix == "pth" else load_file(file)
            assert loaded.keys() == expected.keys()
            for name, tensor in expected.items():
                assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name
            model.load_state_dict(loaded, strict=True)
    lineage = json.loads(metadata_of(tmp_path / "weights--ema.safetensors")["lineage"])
    assert lineage["is_average"] and lineage["step"] == 2
    of_its_checkpoint = json.loads((trainer.checkpoints / "g0/step2/lineage.json").read_text())
    assert lineage["program"] == of_its_checkpoint["program"]
    # The way that large files are opened.
    mapped = torch.load(tmp_path / "weights--ema.pth", weights_only=True, mmap=True)
    assert torch.equal(mapped["fc.weight"], average["fc.weight"])


@pytest.mark.long
def test_an_exported_vit_loads_strictly_in_timm(trainer: Trainer, tmp_path: Path) -> None:
    trainer.run(train__max_steps=1, model__name="vit_small_patch16", optimizer__kind="adamw")
    file = tmp_path / "vit.pth"
    imgcli("export", trainer.checkpoints, "--to", "torch", "-o", file)
    model = timm.create_model("vit_small_patch16_224", num_classes=4, img_size=32)
    model.load_state_dict(torch.load(file, weights_only=True), strict=True)


@pytest.mark.parametrize(
    "form",
    [
        "model.safetensors",
        pytest.param("torch", marks=pytest.mark.long),
        pytest.param("safetensors", marks=pytest.mark.long),
    ],
)
def test_what_leaves_no_trace_in_the_tensors_comes_along(form: str, trainer: Trainer, tmp_path: Path) -> None:
    run = trainer.run(train__max_steps=3, data__val=trainer.val, model__blurpool=True)
    file = trainer.checkpoints / "g0/step3/model.safetensors"
    if form != "model.safetensors":
        file = tmp_path / "weights"
        imgcli("export", trainer.checkpoints, "--to", form, "-o", file)
    evaluate: list[str | Path] = [IMGTRAIN, "eval", "--json", file, trainer.val, "--set", "data.val_size=32",
                "--set", "data.val_resize=36"]  # fmt: skip
    done = subprocess.run(evaluate, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["loss"] == pytest.approx(run.events("epoch")[-1].val_loss, rel=1e-4)
    other = subprocess.run([*evaluate, "--set", "model.blurpool=false"], capture_output=True, text=True)
    assert other.returncode == 2
    assert "it was trained with model.blurpool: true, and the model has false" in other.stderr
    trainer.checkpoints = tmp_path / "other"
    refused = trainer.start(train__max_steps=1, model__init_from=file)
    assert refused.wait() == [2]
    assert "it was trained with model.blurpool: true" in refused.output[0][1]
    trainer.run(train__max_steps=1, model__init_from=file, model__blurpool=True)
