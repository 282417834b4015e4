"""Ranks that stop, die or lose their link: the whole gang ends soon, and the reason says which and where."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
import time
from pathlib import Path

import pytest
from conftest import MakeJob
from fake_s3 import BUCKET, FakeS3
from harness import Cluster, alive, processes_with, wait_for
from netns import Network

# Short ones, so that the tests are; the defaults are tested by test_the_default_limits.
LIMITS = ("limits={silence: 5s, step: 5s, input: 5s, autotune: 20s, validation: 8s, checkpoint: 8s}",)


def pulse(cluster: Cluster, node: str, generation: int = 1) -> tuple[int, str]:
    """The step that the node's rank is at, and what it does (common/pulse.cc has the layout)."""
    path = next((cluster.root / node / "runs").glob(f"*-{generation}-*/pulse.0"))
    data = path.read_bytes()
    return struct.unpack_from("=Q", data, 32)[0], data[64:128].split(b"\0")[0].decode()


class Hanging:
    """The main thread of a process, held by ptrace(2): its other threads, the pulse's among them, run on."""

    WALL = 0x40000000  # of wait(2), for threads

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long
        if self.libc.ptrace(0x4206, pid, None, None) != 0:  # PTRACE_SEIZE
            pytest.skip(f"a process can't be traced here: {os.strerror(ctypes.get_errno())}")
        assert self.libc.ptrace(0x4207, pid, None, None) == 0  # PTRACE_INTERRUPT
        os.waitpid(pid, self.WALL)

    def let_go(self) -> None:
        assert self.libc.ptrace(17, self.pid, None, None) == 0  # PTRACE_DETACH

    def let_go_if_ended(self) -> None:
        """Whoever traces a process is told of its end before its parent is, who hears of it after that."""
        if not self.ended:
            pid, status = os.waitpid(self.pid, os.WNOHANG | self.WALL)
            self.ended = pid != 0 and (os.WIFEXITED(status) or os.WIFSIGNALED(status))


def requeued(cluster: Cluster, job: int) -> dict[str, str]:
    """Why the job went back to the queue, once."""
    changes = [h["state_change"] for h in cluster.history(job)]
    found = [c for c in changes if c["to"] == "JOB_STATE_QUEUED" and c["from"] != "JOB_STATE_UNSPECIFIED"]
    assert len(found) == 1, found
    change: dict[str, str] = found[0]
    return change


def wait_requeued(cluster: Cluster, job: int, seconds: float) -> dict[str, str]:
    wait_for("the run to be ended", lambda: cluster.job(job)["restarts"] == 1 or None, seconds)
    return requeued(cluster, job)


def wait_started_again(cluster: Cluster, job: int) -> None:
    """Waits until the job trains again, and ends it."""
    assert int(cluster.wait_state(job, "JOB_STATE_RUNNING")["generation"]) >= 2
    cluster.cli("cancel", str(job))


def node_of(cluster: Cluster, job: int, rank: int) -> str:
    name: str = next(p["node"] for p in cluster.job(job)["placements"] if int(p.get("first_rank", 0)) == rank)
    return name


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_stopped_rank_is_named_and_the_run_goes_on_without_it(rank: int, cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500), *LIMITS)
    cluster.wait_step(job, 13)
    pids = cluster.rank_pids(job)
    node = node_of(cluster, job, rank)
    os.kill(pids[rank], signal.SIGSTOP)
    stopped = time.monotonic()
    reason = wait_requeued(cluster, job, 20)
    assert 4 < time.monotonic() - stopped < 15
    assert reason["reason"] == "REASON_CODE_RANK_STUCK"
    stuck = rf"rank {rank} on node {node} is stopped: .* sign of life for \d+ s, at step \d+, "
    assert re.search(stuck, reason["text"]), reason
    if rank == 0:
        assert "its last log line: " in reason["text"], reason
    assert not any(alive(pid) for pid in pids.values()), "a stopped rank is ended as the others are"
    wait_started_again(cluster, job)


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_though_its_process_lives_is_named(rank: int, cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500), *LIMITS, "limits.checkpoint=5s")
    cluster.wait_step(job, 13)
    node = node_of(cluster, job, rank)
    hanging = Hanging(cluster.rank_pids(job)[rank])
    begun = time.monotonic()

    def ended() -> bool:
        hanging.let_go_if_ended()
        return int(cluster.job(job)["restarts"]) == 1

    wait_for("the run to be ended", ended, 30)
    assert 4 < time.monotonic() - begun < 20
    reason = requeued(cluster, job)
    assert reason["reason"] == "REASON_CODE_RANK_STUCK"
    stuck = rf"no progress: rank {rank} on node {node} has been at step \d+, .+ \(collective \d+\) for \d+ s"
    assert re.search(stuck, reason["text"]), reason
    wait_started_again(cluster, job)


@pytest.mark.long
def test_the_default_limits(cluster: Cluster, make_job: MakeJob) -> None:
    """A rank that stands for less than 15 s is left alone, one that does for longer is not."""
    job = cluster.submit(make_job(epochs=500))
    cluster.wait_step(job, 13)
    pids = cluster.rank_pids(job)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(10)
    os.kill(pids[1], signal.SIGCONT)
    cluster.wait_step(job, int(cluster.job(job)["last_step"]["step"]) + 5)
    assert int(cluster.job(job)["generation"]) == 1
    os.kill(pids[1], signal.SIGSTOP)
    stopped = time.monotonic()
    reason = wait_requeued(cluster, job, 30)
    assert 14 < time.monotonic() - stopped < 20
    assert "rank 1 on node" in reason["text"] and "is stopped" in reason["text"]
    cluster.cli("cancel", str(job))


@pytest.mark.long
def test_a_rank_killed_in_the_all_reduce_ends_the_run_within_3_seconds(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500))
    cluster.wait_step(job, 13)
    pids = cluster.rank_pids(job)
    victim = node_of(cluster, job, 1)

    # The other one stands still, so that this one waits for it in an all-reduce until it is killed.
    def stop_it_in_an_all_reduce() -> bool:
        os.kill(pids[0], signal.SIGSTOP)
        time.sleep(1)
        if "all-reduce" in pulse(cluster, victim)[1]:
            return True
        os.kill(pids[0], signal.SIGCONT)
        return False

    wait_for("rank 1 to wait in an all-reduce", stop_it_in_an_all_reduce, 20)
    step, what = pulse(cluster, victim)
    os.kill(pids[1], signal.SIGKILL)
    killed = time.monotonic()
    reason = wait_requeued(cluster, job, 10)
    assert time.monotonic() - killed < 3
    assert reason["reason"] == "REASON_CODE_RANK_KILLED"
    expected = f"rank 1 on node {victim} was killed by signal 9 (SIGKILL) at step {step}, {what} (collective "
    assert expected in reason["text"], reason
    assert not any(alive(pid) for pid in pids.values())
    wait_started_again(cluster, job)


# A step may take far less time than anything else.
SHORT_STEPS = (
    "limits={silence: 30s, step: 3s, input: 3s, autotune: 30s, start: 30s, validation: 30s, checkpoint: 30s}",
)
LONGER = 8  # than a step may take, seconds


def trainer_of(cluster: Cluster, node: str) -> int:
    """Pid of the rank that has just been started on the node."""

    def probe() -> int | None:
        for pid in processes_with(f"IMGD_RUN_DIR={cluster.root / node / 'runs'}", "environ"):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "imgtrain":
                return pid
        return None

    return wait_for(f"a rank on node {node}", probe, 20)


def assert_goes_on(cluster: Cluster, job: int) -> None:
    shown = cluster.wait_step(job, int(cluster.job(job).get("last_step", {}).get("step", 0)) + 5)
    assert int(shown["generation"]) == 1 and int(shown["restarts"]) == 0, shown
    cluster.cli("cancel", str(job))


@pytest.mark.long
@pytest.mark.parametrize("during", ["start", "validation"])
def test_what_may_take_longer_than_a_step_is_left_alone(during: str, cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500), *SHORT_STEPS, "data.val_size=224", "checkpoint.every_steps=0")
    wait_for("the job to be placed", lambda: cluster.job(job).get("placements"), 20)
    node = node_of(cluster, job, 1)
    if during == "start":
        hanging = Hanging(trainer_of(cluster, node))
        assert "last_step" not in cluster.job(job)
    else:
        cluster.wait_step(job, 3)
        pid = cluster.rank_pids(job)[1]
        wait_for("rank 1 to validate", lambda: pulse(cluster, node)[1] == "validation", 30)
        hanging = Hanging(pid)
        assert pulse(cluster, node)[1] == "validation"
    time.sleep(LONGER)
    hanging.let_go()
    assert_goes_on(cluster, job)


@pytest.mark.long
def test_a_checkpoint_that_takes_longer_than_a_step_is_left_alone(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = FakeS3()
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    try:
        with Cluster(tmp_path) as cluster:
            cluster.start_daemon()
            for node in ("a", "b"):
                cluster.start_agent(node)
            s3.hold("step15/")
            job = cluster.submit(make_job(epochs=500), *SHORT_STEPS, f"checkpoint.dir=s3://{BUCKET}/ckpt/")
            assert s3.held.wait(60)
            # It goes on training until it has the next one to save.
            saver = node_of(cluster, job, 0)
            waits = (20, "writing the checkpoint before")
            wait_for("rank 0 to wait with step 20's", lambda: pulse(cluster, saver) == waits, 30)
            time.sleep(LONGER)
            assert pulse(cluster, saver) == waits
            s3.release()
            assert_goes_on(cluster, job)
    finally:
        s3.close()


@pytest.mark.long
def test_slow_ranks_and_absent_agents_and_daemons_stop_no_run(cluster: Cluster, make_job: MakeJob) -> None:
    job = cluster.submit(make_job(epochs=500), *LIMITS)
    cluster.wait_step(job, 13)
    pids = cluster.rank_pids(job)
    assert cluster.daemon
    for _ in range(2):  # each less than the limits, together more
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(pids[1], signal.SIGCONT)
        time.sleep(1)
    cluster.agents["a"].send_signal(signal.SIGSTOP)
    time.sleep(6)  # of which the agent knows nothing afterwards
    cluster.agents["a"].send_signal(signal.SIGCONT)
    cluster.agents["b"].kill()
    cluster.agents["b"].wait()
    cluster.daemon.kill()
    cluster.daemon.wait()
    time.sleep(6)
    cluster.start_daemon()
    cluster.restart_agent("b")
    step = int(cluster.job(job)["last_step"]["step"])
    cluster.wait_step(job, step + 3)
    time.sleep(6)  # longer than the limits: nothing of what was not heard counts
    assert int(cluster.wait_step(job, step + 5)["generation"]) == 1
    assert cluster.rank_pids(job) == pids
    cluster.cli("cancel", str(job))


def start_nodes(network: Network, root: Path, address: dict[str, str]) -> Cluster:
    """A daemon on the hub and an agent on each node; their ranks talk by these addresses."""
    (root / "checkpoints").mkdir()
    config = root / "imgd.yaml"
    config.write_text("heartbeat: 1s\n")
    cluster = Cluster(root, server_args=["--config", str(config)], host=network.address["hub"], port=7650,
                      prefix=["ip", "netns", "exec", network.hub])  # fmt: skip
    cluster.start_daemon()
    for node in network.names:
        cluster.start_agent(node, "--shared-folder", str(root / "checkpoints"), "--address", address[node],
                            prefix=network.command(node))  # fmt: skip
    return cluster


@pytest.mark.long
def test_of_a_lost_link_between_ranks_the_pair_is_named(network: Network, tmp_path: Path, make_job: MakeJob) -> None:
    cluster = start_nodes(network, tmp_path, network.data_address)
    try:
        job = cluster.submit(make_job(epochs=500), *LIMITS)
        cluster.wait_step(job, 13)
        pids = cluster.rank_pids(job)
        network.cut_data("b")
        cut = time.monotonic()
        reason = wait_requeued(cluster, job, 30)
        assert time.monotonic() - cut < 20
        assert reason["reason"] == "REASON_CODE_RANK_STUCK"
        link = re.search(r"the link between rank (\d) on node (\w) and node (\w) \(rank (\d)\) is lost", reason["text"])
        assert link, reason["text"]
        assert {link[1], link[4]} == {"0", "1"} and {link[2], link[3]} == {"a", "b"}
        assert re.search(r"has been at step \d+, .* \(collective \d+\) for \d+ s", reason["text"]), reason["text"]
        assert not any(alive(pid) for pid in pids.values())
        network.mend("b")
        wait_started_again(cluster, job)
    finally:
        cluster.close()


@pytest.mark.long
@pytest.mark.parametrize("waits_to", ["go on", pytest.param("receive", marks=pytest.mark.long)])
def test_a_node_off_the_network_is_lost_as_soon_as_its_gang_waits_for_it(
    waits_to: str, network: Network, tmp_path: Path, make_job: MakeJob
) -> None:
    """Also where the rank that is left has nothing under way that the other's kernel could leave unanswered."""
    cluster = start_nodes(network, tmp_path, network.address)
    try:
        job = cluster.submit(make_job(epochs=500), *LIMITS)
        cluster.wait_step(job, 13)
        first = int(node_of(cluster, job, 0) != "a")
        other, gone = cluster.rank_pids(job)[first], cluster.rank_pids(job)[1 - first]
        if waits_to == "receive":
            os.kill(gone, signal.SIGSTOP)
            time.sleep(1.5)
        network.cut("b")
        cut = time.monotonic()
        reason = wait_requeued(cluster, job, 40)
        assert time.monotonic() - cut < 25, "lost_after, 45 s, is for nodes whose gang goes on"
        assert reason["reason"] == "REASON_CODE_NODE_LOST"
        lost = (
            r"node b is out of reach, and the gang has stood still for \d+ s: rank . there was last seen at step \d+, "
        )
        assert re.search(lost, reason["text"]), reason
        assert not alive(other)
        assert cluster.node_state("b") == "NODE_STATE_LOST"
        cluster.cli("cancel", str(job))
        network.mend("b")
    finally:
        cluster.close()


@pytest.mark.long
@pytest.mark.parametrize("network", ["abcd"], indirect=True)
@pytest.mark.parametrize("cut", ["a", "b"])  # rank 0's, where the ranks meet, and another one's
def test_a_node_that_its_gang_does_not_reach_is_named_and_the_job_starts_elsewhere(
    cut: str, network: Network, tmp_path: Path, make_job: MakeJob
) -> None:
    """Its agent reaches the daemon all the while, so that nothing but the gang's own start can tell."""
    cluster = start_nodes(network, tmp_path, network.data_address)
    try:
        network.cut_data(cut)
        job = cluster.submit(make_job(nodes=3, epochs=1), "limits={start: 15s}", "train.global_batch=24")
        assert [p["node"] for p in cluster.job(job)["placements"]] == ["a", "b", "c"]
        reason = wait_requeued(cluster, job, 60)
        assert f"the ranks got no answer from node {cut} or waited for it, so that it is avoided" in reason["text"]
        assert "last_step" not in cluster.job(job)
        done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
        assert {p["node"] for p in done["placements"]} == {"a", "b", "c", "d"} - {cut}
        assert int(done["restarts"]) == 1
    finally:
        cluster.close()
