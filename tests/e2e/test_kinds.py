"""Commands and conversions as jobs. Real processes throughout."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MakeJob
from harness import Cluster, alive, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A daemon that allows commands, and two agents, a and b, of two CPU slots each."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "imgd.yaml").write_text("commands: true\n")
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        cluster.start_agent("a", slots=2)
        cluster.start_agent("b", slots=2)
        yield cluster


def submit(cluster: Cluster, folder: Path, text: str, *arguments: str) -> int:
    path = folder / "kind.yaml"
    path.write_text(text)
    return int(cluster.json("submit", str(path), *arguments)["id"])


def lines(cluster: Cluster, job: int, rank: int) -> list[str]:
    logs: str = cluster.cli("logs", str(job), "--rank", str(rank)).stdout
    return logs.splitlines()


def test_a_gang_of_a_command_is_told_who_it_is_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, "name: who\nresources: {nodes: 2}\n"
                 "command: {run: 'env | sort; pwd; echo mine > rank$RANK', env: {LR: 0.1}}\n")  # fmt: skip
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert done["reason_text"] == "all 2 processes ended with exit code 0"
    assert done["kind"] == "JOB_KIND_COMMAND"
    folder = Path(done["checkpoint_dir"])
    ports = set()
    for rank in (0, 1):
        said = "\n".join(lines(cluster, job, rank))
        for word in (f"RANK={rank}", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", f"GROUP_RANK={rank}",
                     "MASTER_ADDR=127.0.0.1", f"IMGD_JOB_ID={job}", "IMGD_GENERATION=1", "LR=0.1",
                     f"IMGD_CHECKPOINT_DIR={folder}", str(folder)):  # fmt: skip
            assert word in said, (word, said)
        ports.add(said.split("MASTER_PORT=")[1].split()[0])
        assert (folder / f"rank{rank}").read_text() == "mine\n"
    assert len(ports) == 1
    shown = cluster.cli("show", str(job)).stdout
    assert "env | sort" in shown and " nan" not in shown and "\n  checkpoints" not in shown
    head, row = cluster.cli("jobs").stdout.splitlines()[:2]
    assert head.split() == ["ID", "NAME", "KIND", "STATE", "NODES", "AGE"] and "command" in row
    assert "COMPLETED" in cluster.cli("explain", str(job)).stdout
    assert cluster.cli("watch", str(job), "--no-follow").stdout.count("nan") == 0


def test_one_process_a_node_has_all_its_devices(cluster: Cluster, tmp_path: Path) -> None:
    # torchrun on each node, as its own documentation has it: rank 0's listens on the rendezvous port.
    program = ("import os, socket, time\n"
               "place, port = int(os.environ['PET_NODE_RANK']), int(os.environ['PET_MASTER_PORT'])\n"
               "print('workers', int(os.environ['PET_NNODES']) * int(os.environ['PET_NPROC_PER_NODE']), flush=True)\n"
               "if place == 0:\n"
               "    server = socket.create_server((os.environ['PET_MASTER_ADDR'], port))\n"
               "    server.accept()[0].sendall(b'met')\n"
               "else:\n"
               "    for _ in range(600):\n"
               "        try:\n"
               "            print(socket.create_connection((os.environ['PET_MASTER_ADDR'], port)).recv(3).decode())\n"
               "            break\n"
               "        except ConnectionRefusedError:\n"
               "            time.sleep(0.05)\n")  # fmt: skip
    (tmp_path / "meet.py").write_text(program)
    job = submit(cluster, tmp_path, "name: meet\nresources: {nodes: 2, ranks_per_node: 2}\n"
                 f"command: {{run: [python3, {tmp_path}/meet.py], per: node}}\n")  # fmt: skip
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert [len(placement["devices"]) for placement in done["placements"]] == [2, 2]
    assert len(done["rank_exits"]) == 2
    assert lines(cluster, job, 0)[0].endswith("workers 4")
    assert lines(cluster, job, 1)[-1].endswith("met")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch for this Python, so no torchrun")
def test_torchrun_itself_makes_a_gang_of_four_workers_on_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """The one of PyTorch's wheel; what it runs knows nothing of imgd."""
    (tmp_path / "sum.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "rank = torch.tensor([float(dist.get_rank())])\n"
        "dist.all_reduce(rank)\n"
        "words = ['rank', dist.get_rank(), 'of', dist.get_world_size(), 'on', os.environ['GROUP_RANK'],"
        " 'local', os.environ['LOCAL_RANK'], 'sum', int(rank)]\n"
        "os.write(1, (' '.join(map(str, words)) + '\\n').encode())  # whole: two write into one log\n"
        "dist.destroy_process_group()\n")  # fmt: skip
    job = submit(cluster, tmp_path, "name: torchrun\nresources: {nodes: 2, ranks_per_node: 2}\nmax_restarts: 0\n"
                 "command:\n  per: node\n  env: {OMP_NUM_THREADS: 1}\n"
                 f"  run: [{sys.executable}, -m, torch.distributed.run, {tmp_path}/sum.py]\n")  # fmt: skip
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert done["reason_text"] == "all 2 processes ended with exit code 0"
    said = sorted(
        line[line.index("rank ") :] for node in (0, 1) for line in lines(cluster, job, node) if " sum " in line
    )
    assert said == [f"rank {rank} of 4 on {rank // 2} local {rank % 2} sum 6" for rank in range(4)]


def test_one_that_fails_is_tried_again_and_ends_with_its_last_line(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, "name: fails\nmax_restarts: 1\nresources: {nodes: 2}\n"
                 "command: {run: 'echo start $IMGD_GENERATION; test $RANK = 0 && sleep 600;"
                 " echo no licence $IMGD_GENERATION >&2; exit 2'}\n")  # fmt: skip
    failed = cluster.wait_state(job, "JOB_STATE_FAILED")
    assert failed["reason"] == "REASON_CODE_RETRIES_EXHAUSTED"
    assert "failed with exit code 2; last error line: no licence 2" in failed["reason_text"]
    assert failed["restarts"] == 1 and failed["generation"] == "2"
    assert "no licence 2" in cluster.cli("explain", str(job)).stdout


def test_a_cancel_kills_what_does_not_end_within_its_grace(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, "name: deaf\ngrace: 1s\n"
                 "command: {run: 'trap \"\" TERM; sleep 600 & echo $! $$; wait; "
                 "while :; do sleep 1; done'}\n")  # fmt: skip
    cluster.wait_state(job, "JOB_STATE_RUNNING")
    pids = wait_for("the program to begin", lambda: lines(cluster, job, 0))[0].split()[-2:]
    began = time.monotonic()
    cluster.cli("cancel", str(job), "--wait")
    assert 0.9 < time.monotonic() - began < 20
    assert cluster.job(job)["state"] == "JOB_STATE_CANCELLED"
    assert not any(alive(int(pid)) for pid in pids)


def test_one_that_is_paused_goes_on_from_what_it_kept(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, tmp_path, "name: keeps\ncommand:\n  run: |\n"
                 "    if test -f kept; then echo found it; exit 0; fi\n"
                 "    trap 'echo > kept; exit 0' TERM; echo up; while :; do sleep 0.05; done\n")  # fmt: skip
    wait_for("the program to begin", lambda: any(line.endswith("up") for line in lines(cluster, job, 0)))
    cluster.cli("pause", str(job), "--wait")
    assert cluster.job(job)["state"] == "JOB_STATE_PAUSED"
    cluster.cli("resume", str(job))
    cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert lines(cluster, job, 0)[-1].endswith("found it")


def test_programs_go_on_while_daemon_and_agent_restart(cluster: Cluster, tmp_path: Path) -> None:
    text = "name: goes-on\ncommand: {run: 'echo up; while ! test -f end; do sleep 0.05; done'}\n"
    job = submit(cluster, tmp_path, text)
    running = cluster.wait_state(job, "JOB_STATE_RUNNING")
    node = running["placements"][0]["node"]
    assert cluster.daemon
    for process in (cluster.daemon, cluster.agents[node]):
        process.kill()
        process.wait()
    cluster.start_daemon()
    cluster.restart_agent(node)
    (Path(running["checkpoint_dir"]) / "end").touch()
    assert cluster.wait_state(job, "JOB_STATE_COMPLETED")["generation"] == "1"


def test_commands_are_off_unless_they_are_allowed(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.daemon
    cluster.daemon.kill()
    cluster.daemon.wait()
    (tmp_path / "imgd.yaml").write_text("")  # the default
    cluster.start_daemon()
    (tmp_path / "kind.yaml").write_text("name: x\ncommand: {run: [id]}\n")
    refused = cluster.cli("submit", str(tmp_path / "kind.yaml"), check=False)
    assert refused.returncode == 2
    assert "kind.yaml:2:10: command: commands are not allowed here" in refused.stderr
    assert "commands: true in imgd.yaml" in refused.stderr


def test_a_conversion_makes_a_set_that_has_a_name(cluster: Cluster, dataset: Path, tmp_path: Path) -> None:
    text = f"name: conv\nconvert: {{source: {dataset}, target: {tmp_path}/shards, shards: 2, register: shapes}}\n"
    blocker = submit(cluster, tmp_path, "name: blocker\nresources: {nodes: 2, ranks_per_node: 2}\n"
                     f"command: {{run: 'while ! test -f {tmp_path}/go; do sleep 0.05; done'}}\n")  # fmt: skip
    cluster.wait_state(blocker, "JOB_STATE_RUNNING")
    assert "a conversion; it needs 1 node" in cluster.cli("submit", str(write(tmp_path, text)), "--dry-run").stdout
    conversion = submit(cluster, tmp_path, text)
    assert f"(job {conversion} is to make it)" in cluster.cli("dataset", "list").stdout
    assert "REGISTERED" in cluster.cli("dataset", "list", "-o", "wide").stdout
    (tmp_path / "go").touch()
    done = cluster.wait_state(conversion, "JOB_STATE_COMPLETED")
    assert done["reason_text"] == "the data set is converted"
    assert [(s["name"], s["address"], s["made_by"]) for s in cluster.json("dataset", "list")] == [
        ("shapes", f"{tmp_path}/shards", "0")]  # fmt: skip
    assert "160 images" in "\n".join(lines(cluster, conversion, 0))
    cluster.cli("dataset", "verify", f"{tmp_path}/shards")
    # Again: it is there already. And what can't be converted is said, and not tried again.
    again = cluster.json("rerun", str(conversion))["id"]
    cluster.wait_state(int(again), "JOB_STATE_COMPLETED")
    assert "was there already" in "\n".join(lines(cluster, int(again), 0))
    (tmp_path / "empty").mkdir()
    bad = submit(cluster, tmp_path, f"name: bad\nconvert: {{source: {tmp_path}/empty, target: {tmp_path}/bad}}\n")
    failed = cluster.wait_state(bad, "JOB_STATE_FAILED")
    assert failed["reason"] == "REASON_CODE_BAD_INPUT" and "holds" in failed["reason_text"], failed["reason_text"]


def test_training_comes_after_the_conversion_of_its_data(cluster: Cluster, make_job: MakeJob, dataset: Path,
                                                         tmp_path: Path) -> None:  # fmt: skip
    training = make_job(nodes=1, epochs=1)
    sets = ["--set", "data.train=dataset:shapes/train", "--set", "data.val=dataset:shapes/val"]
    refused = cluster.cli("submit", str(training), *sets, check=False)
    assert refused.returncode == 2 and "no data set 'shapes' is registered" in refused.stderr
    conversion = submit(cluster, tmp_path,
                        f"name: conv\nconvert: {{source: {dataset}, target: {tmp_path}/shards, register: shapes}}\n",
                        "--not-before", "2s")  # fmt: skip
    refused = cluster.cli("submit", str(training), *sets, check=False)
    assert refused.returncode == 5 and f"is still to be made by job {conversion}" in refused.stderr
    job = int(cluster.json("submit", str(training), *sets, "--after", "conv")["id"])
    assert f"train: {tmp_path}/shards/train" in cluster.job(job)["job_yaml"].replace('"', "")
    done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
    assert int(done["started_us"]) >= int(cluster.job(conversion)["ended_us"])


def write(folder: Path, text: str) -> Path:
    path = folder / "kind.yaml"
    path.write_text(text)
    return path
