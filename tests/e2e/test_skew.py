"""imgd understands agents and trainers of earlier versions: what they said then was recorded, and is said again."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from exchange import JOB, METHOD, Exchange, Said, messages_of, replay
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import Cluster, wait_for

EXCHANGES = Path(__file__).parent / "exchanges"
RECORDED = sorted(EXCHANGES.glob("agent-*.json"))
TRAINERS = sorted(EXCHANGES.glob("trainer-*.json"))
assert RECORDED and TRAINERS, f"nothing is recorded in {EXCHANGES}"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_agent_still_trains_a_job_to_its_end(path: Path, tmp_path: Path) -> None:
    exchange = Exchange.load(path)
    # Its words are of then, and so is its clock.
    (tmp_path / "imgd.yaml").write_text("most_clock_skew: 0\n")
    (tmp_path / "job.yaml").write_text(JOB.replace("SET", "/data/shapes"))
    with Cluster(tmp_path, server_args=["--config", str(tmp_path / "imgd.yaml")]) as cluster:
        cluster.start_daemon()
        job = cluster.submit(tmp_path / "job.yaml")
        with grpc.insecure_channel(cluster.address) as channel:
            acknowledged = replay(exchange, channel)
        done = cluster.job(job)
        assert done["state"] == "JOB_STATE_COMPLETED", done
        assert [s["step"] for s in cluster.steps(job)] == [str(n) for n in range(1, 9)]
        assert int(done["last_epoch"]["val_images"]) == 16
        assert done["last_checkpoint"]["path"].endswith("g1/step8")
        assert acknowledged == len(cluster.cli("logs", str(job)).stdout.splitlines())
        (node,) = cluster.json("nodes")
        assert node["agent_version"] == exchange.version


@pytest.mark.parametrize(
    ("version", "words"), [("9.0.0", "too new"), ("9.1.0~git20260131120000.1a2b3c4", "upgrade imgd first")]
)
def test_an_agent_of_another_release_is_told_so(version: str, words: str, tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start_daemon()
        with grpc.insecure_channel(cluster.address) as channel:
            request, answer = messages_of(channel)
            hello = request(hello={"node": "other", "agent_id": "other", "version": version, "devices": [{}]})
            stream = channel.stream_stream(METHOD, request.SerializeToString, answer.FromString)(
                iter([hello]), timeout=20
            )
            with pytest.raises(grpc.RpcError) as refused:
                list(stream)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert words in refused.value.details()
        assert version in refused.value.details()
        log = (tmp_path / "imgd.log").read_text()
        assert f"imgagent {version} is too new for imgd" in log and words in log
        assert cluster.json("nodes") == []


def start_saying(cluster: Cluster, events: bytes) -> int:
    """A job whose trainer says that, and ends."""
    said = cluster.root / "said"
    said.write_bytes(events)
    trainer = cluster.root / "imgtrain"
    trainer.write_text(f'#!/bin/sh\ncat {said} >"$IMGD_RUN_DIR/events.$LOCAL_RANK"\n')
    trainer.chmod(0o755)
    path = cluster.root / "job.yaml"
    path.write_text(JOB.replace("SET", "/data/shapes"))
    cluster.start_daemon()
    cluster.start_agent("a", "--trainer", str(trainer))
    return cluster.submit(path)


@pytest.mark.parametrize("path", TRAINERS, ids=lambda path: path.stem)
def test_what_a_recorded_trainer_said_goes_through_the_agent_to_the_end_of_its_job(path: Path, tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        job = start_saying(cluster, Said.load(path).events)
        done = cluster.wait_state(job, "JOB_STATE_COMPLETED")
        assert [s["step"] for s in cluster.steps(job)] == [str(n) for n in range(1, 9)]
        assert int(done["last_epoch"]["val_images"]) == 16
        assert done["last_checkpoint"]["path"].endswith("g1/step8")
        assert "another version" not in cluster.cli("events").stdout


def framed(events: bytes) -> list[bytes]:
    bodies = []
    while events:
        length = int.from_bytes(events[:4], "little")
        bodies.append(events[4 : 4 + length])
        events = events[4 + length :]
    return bodies


def test_a_trainer_of_another_release_is_named_by_an_event_and_in_the_log(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        bodies = framed(Said.load(TRAINERS[-1]).events)
        cluster.start_daemon()
        with grpc.insecure_channel(cluster.address) as channel:
            pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
            event = message_factory.GetMessageClass(pool.FindMessageTypeByName("imgd.v1.TrainerEvent"))
            first = next(i for i, body in enumerate(bodies) if "started" in MessageToDict(event.FromString(body)))
            changed = event.FromString(bodies[first])
            assert changed.started.version == Said.load(TRAINERS[-1]).version
            changed.started.version = "9.0.0"
            bodies[first] = changed.SerializeToString()
        assert cluster.daemon
        cluster.daemon.terminate()
        cluster.daemon.wait(20)
        job = start_saying(cluster, b"".join(len(body).to_bytes(4, "little") + body for body in bodies))
        cluster.wait_state(job, "JOB_STATE_COMPLETED")  # it is told, and nothing more
        words = f"job {job} is trained on node a by another version: imgtrain 9.0.0 is too new for imgd"
        wait_for("the event", lambda: words in cluster.cli("events", "--job", str(job)).stdout, 10)
        assert words in (tmp_path / "imgd.log").read_text()
