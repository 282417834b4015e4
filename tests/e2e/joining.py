"""Who joins imgd by TLS: agents by join tokens, and what both sides say of it."""

from __future__ import annotations

import json
from pathlib import Path

from harness import BIN, Cluster, wait_for


def log_of(cluster: Cluster, name: str) -> str:
    return (cluster.root / f"{name}.log").read_text()


def wait_log(cluster: Cluster, name: str, words: str, seconds: float = 20) -> None:
    wait_for(f"'{words}' in {name}'s log", lambda: words in log_of(cluster, name), seconds)


def refusals(cluster: Cluster) -> list[str]:
    """What the record of events has of machines that were not let in."""
    lines = cluster.cli("events", "-o", "json").stdout.splitlines()
    events = [json.loads(line) for line in lines if line.strip()]
    return [event["text"] for event in events if event.get("reason") == "REASON_CODE_JOIN_REFUSED"]


def wait_refusal(cluster: Cluster, words: str) -> None:
    """On imgd's side, in its log and among its events, once each however often the agent asks."""
    wait_for(f"'{words}' among the events", lambda: any(words in text for text in refusals(cluster)), 20)
    assert sum(words in text for text in refusals(cluster)) == 1
    assert log_of(cluster, "imgd").count(words) == 1


def stop_daemon(cluster: Cluster) -> None:
    assert cluster.daemon
    cluster.daemon.terminate()
    cluster.daemon.wait(20)


def stop_agent(cluster: Cluster, name: str) -> None:
    cluster.agents[name].terminate()
    cluster.agents[name].wait(10)


def is_away(cluster: Cluster) -> bool:
    """Of the only node, which is out of reach once it was away for three heartbeats."""
    node = cluster.json("nodes")[0]
    return bool(node.get("disconnected")) or node["state"] != "NODE_STATE_READY"


def long_job(folder: Path) -> Path:
    path = folder / "sleeps.yaml"
    path.write_text("name: sleeps\nmax_restarts: 0\ncommand: {run: 'exec sleep 997'}\n")
    return path


def spawn_agent(cluster: Cluster, name: str, token: str, folder: str = "", server: str = "") -> None:
    """Without waiting for it to be ready, and by a token that the test chose."""
    path = cluster.root / f"{folder or name}.join"
    path.write_text(token)
    command = [str(BIN / "imgagent"), "--server", server or cluster.server, "--node", name,
               "--state-dir", str(cluster.root / (folder or name)), "--cpu-slots", "1",
               "--token-file", str(path)]  # fmt: skip
    cluster.agent_commands[folder or name] = command
    cluster.agents[folder or name] = cluster._spawn(folder or name, command)


def join_token(cluster: Cluster, *args: str) -> str:
    return cluster.cli("node", "join-token", *args).stdout
