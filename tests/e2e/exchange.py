"""Exchanges between an agent and imgd: recorded once, and replayed to a later imgd.

    .deps/pytest/bin/python tests/e2e/exchange.py FILE               records one with the programs in build/release/bin
    .deps/pytest/bin/python tests/e2e/exchange.py --trainer FILE     records what a trainer said to its agent

A recording is what an agent of one version said, byte by byte, from its Hello to the end of a training run, and which
of imgd's commands came when. That of a trainer is the file of its rank's events. Both are made before each release, and
kept as long as its agents and trainers are to be understood.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import BIN, Cluster, free_port, wait_for

METHOD = "/imgd.v1.AgentService/Connect"
# What the agent's next words depend on; acknowledgements come when they come.
COMMANDS = {"welcome", "prepare_run", "start_run", "forget_run"}
NODE = "recorded"
JOB = """\
name: recorded
model: {name: resnet18}
seed: 7
data: {train: SET/train, val: SET/val, image_size: 32, min_scale: 0.35, workers: 1}
train: {epochs: 2, global_batch: 16, precision: fp32, threads: 1, log_every_steps: 1}
optimizer: {lr: 0.02}
checkpoint: {every_epochs: 1}
"""


@dataclass
class Exchange:
    """Steps in their order: ("agent", message) and ("imgd", name of the command)."""

    version: str
    cluster: str = ""  # imgd's id; the replay puts in its place the one of the imgd that it talks to
    steps: list[tuple[str, str]] = field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(
            json.dumps({"version": self.version, "cluster": self.cluster, "steps": self.steps}, indent=0) + "\n"
        )

    @staticmethod
    def load(path: Path) -> Exchange:
        read = json.loads(path.read_text())
        return Exchange(read["version"], read["cluster"], [(who, what) for who, what in read["steps"]])


def messages_of(channel: grpc.Channel) -> tuple[Any, Any]:
    """The classes of what agents and imgd say, by imgd's own reflection."""
    service = DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindServiceByName("imgd.v1.AgentService")
    method = service.FindMethodByName("Connect")
    return message_factory.GetMessageClass(method.input_type), message_factory.GetMessageClass(method.output_type)


@dataclass
class Said:
    """What a trainer appended to the file of its events."""

    version: str
    events: bytes

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"version": self.version, "events": base64.b64encode(self.events).decode()}) + "\n")

    @staticmethod
    def load(path: Path) -> Said:
        read = json.loads(path.read_text())
        return Said(read["version"], base64.b64decode(read["events"]))


class Recorder(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Stands between an agent and imgd, and hands on what they say."""

    def __init__(self, channel: grpc.Channel, exchange: Exchange) -> None:
        self.call = channel.stream_stream(METHOD)  # bytes, as they are
        self.answer = messages_of(channel)[1]
        self.exchange = exchange

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.stream_stream_rpc_method_handler(self.connect) if details.method == METHOD else None

    def heard(self, said: Iterator[bytes]) -> Iterator[bytes]:
        for message in said:
            self.exchange.steps.append(("agent", base64.b64encode(message).decode()))
            yield message

    def connect(self, words: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        for message in self.call(self.heard(words)):
            said = self.answer.FromString(message)
            kind = said.WhichOneof("message")
            if kind == "welcome":
                self.exchange.cluster = said.welcome.cluster_id
            if kind in COMMANDS:
                self.exchange.steps.append(("imgd", kind))
            yield message


def job_of(folder: Path) -> Path:
    """A small training job, with its data."""
    shapes = folder / "shapes"
    subprocess.run([BIN / "imgcli", "dataset", "synth", "--classes", "2", "--per-class", "32", "--val-per-class", "8",
                    "--size", "48x48", shapes], check=True, capture_output=True)  # fmt: skip
    path = folder / "job.yaml"
    path.write_text(JOB.replace("SET", str(shapes)))
    return path


def record(folder: Path) -> Exchange:
    """The life of a small training job, between the programs of this build."""
    path = job_of(folder)
    version = subprocess.run([BIN / "imgagent", "--version"], check=True, capture_output=True, text=True).stdout.split()
    exchange = Exchange(version[-1])
    with Cluster(folder) as cluster:
        cluster.start_daemon()
        with grpc.insecure_channel(cluster.address) as channel:
            server = grpc.server(futures.ThreadPoolExecutor(4))
            server.add_generic_rpc_handlers((Recorder(channel, exchange),))
            address = f"127.0.0.1:{free_port()}"
            server.add_insecure_port(address)
            server.start()
            cluster.agents[NODE] = cluster._spawn(
                NODE, [str(BIN / "imgagent"), "--server", address, "--node", NODE, "--state-dir", str(folder / NODE),
                       "--cpu-slots", "1"])  # fmt: skip
            job = cluster.submit(path)
            cluster.wait_state(job, "JOB_STATE_COMPLETED")
            wait_for("the run to be forgotten", lambda: ("imgd", "forget_run") in exchange.steps)
            server.stop(None).wait()
    # What it says once the run is forgotten is of no interest.
    exchange.steps = exchange.steps[: exchange.steps.index(("imgd", "forget_run")) + 1]
    return exchange


def record_trainer(folder: Path) -> Said:
    """The events of a small training job's only rank, as it wrote them."""
    wrapper = folder / "imgtrain"
    wrapper.write_text(
        f'#!/bin/sh\n{BIN}/imgtrain "$@"\ncode=$?\ncp "$IMGD_RUN_DIR/events.0" {folder}/said\nexit $code\n'
    )
    wrapper.chmod(0o755)
    version = subprocess.run([BIN / "imgtrain", "--version"], check=True, capture_output=True, text=True).stdout.split()
    with Cluster(folder) as cluster:
        cluster.start_daemon()
        cluster.start_agent(NODE, "--trainer", str(wrapper))
        cluster.wait_state(cluster.submit(job_of(folder)), "JOB_STATE_COMPLETED")
    return Said(version[-1], (folder / "said").read_bytes())


def replay(exchange: Exchange, channel: grpc.Channel, seconds: float = 60) -> int:
    """Says what the agent said, when it said it. Returns the last line of the log that was acknowledged."""
    answer = messages_of(channel)[1]
    words: queue.Queue[bytes | None] = queue.Queue()
    stream = channel.stream_stream(METHOD, response_deserializer=answer.FromString)(
        iter(words.get, None), timeout=seconds)  # fmt: skip
    last_line = 0
    cluster = exchange.cluster.encode()
    for who, what in exchange.steps:
        if who == "agent":
            words.put(base64.b64decode(what).replace(exchange.cluster.encode(), cluster))
            continue
        for message in stream:
            kind = message.WhichOneof("message")
            if kind == "welcome":
                cluster = message.welcome.cluster_id.encode()
                assert len(cluster) == len(exchange.cluster), "the same length, since it is put in by bytes"
            if kind == "logs_ack":
                last_line = max(last_line, message.logs_ack.line_number)
            if kind == what:
                break
            assert kind not in COMMANDS, f"{what} was to come, and {kind} came"
        else:
            raise AssertionError(f"the stream ended before {what}")
    words.put(None)
    stream.cancel()
    return last_line


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        recorded = record_trainer(Path(temporary)) if sys.argv[1] == "--trainer" else record(Path(temporary))
        recorded.save(Path(sys.argv[-1]))
