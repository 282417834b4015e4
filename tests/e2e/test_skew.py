"""imgd understands agents of earlier versions: exchanges that were recorded then, replayed byte by byte."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from exchange import JOB, METHOD, Exchange, messages_of, replay
from harness import Cluster

RECORDED = sorted((Path(__file__).parent / "exchanges").glob("agent-*.json"))


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
        assert cluster.json("nodes") == []
