"""Ready recipes, as `imgcli submit recipe:NAME` gives them to a daemon and its agents. Real processes throughout."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Cluster

RECIPES = ["rn50-90ep", "rn50-dawnbench-16x8", "rn50-horovod-32", "rn50-ffcv-16", "rn50-ffcv-40", "rn50-lars-32k",
           "rn50-torchvision-v2", "rn18-2gpu"]  # fmt: skip


def sets(**values: object) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def test_every_recipe_is_a_job_that_the_daemon_takes(cluster: Cluster, dataset: Path) -> None:
    listed = {recipe["name"] for recipe in cluster.json("recipes")}
    assert listed == set(RECIPES)
    data = sets(data__train=dataset / "train", data__val=dataset / "val")
    for name in RECIPES:
        job = cluster.json("submit", f"recipe:{name}", "--dry-run", *data)
        assert job["name"] == name
        # These two nodes have one device each, which is what that one is for.
        fits = name == "rn18-2gpu"
        assert job["reason"] == ("REASON_CODE_PLACED" if fits else "REASON_CODE_NEVER_FITS"), job
    # A key that no recipe has is refused by the place where it would be.
    refused = cluster.cli("submit", "recipe:rn18-2gpu", "--dry-run", *data, *sets(train__epoch=1), check=False)
    assert refused.returncode == 2 and "train.epoch" in refused.stderr
    assert cluster.json("jobs") == []


def test_a_recipe_is_trained_by_two_nodes_with_nothing_but_its_settings(cluster: Cluster, dataset: Path) -> None:
    """With less of everything: three steps of small images."""
    job = int(cluster.json(
        "submit", "recipe:rn18-2gpu",
        *sets(data__train=dataset / "train", data__val=dataset / "val", data__image_size=32, data__val_size=32,
              data__val_resize=36, data__workers=1, train__global_batch=16, train__threads=1, train__max_steps=3,
              train__log_every_steps=1),
    )["id"])  # fmt: skip
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [int(step["step"]) for step in cluster.steps(job)] == [1, 2, 3]
    assert done["name"] == "rn18-2gpu"
    assert {place["node"] for place in done["placements"]} == {"a", "b"}
    assert all(step["learning_rate"] == pytest.approx(0.1) for step in cluster.steps(job))
    assert Path(done["last_checkpoint"]["path"]).is_dir()
