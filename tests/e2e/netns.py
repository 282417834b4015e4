"""Network namespaces: nodes of their own on one machine, with links that a test can cut."""

from __future__ import annotations

import os
import subprocess


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def namespaces_work() -> str:
    """Empty when this machine has what the test needs, else what it lacks."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    probe = subprocess.run(["ip", "netns", "add", "imgd-probe"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"no network namespaces here: {probe.stderr.strip()}"
    ip("netns", "del", "imgd-probe")
    return ""


class Network:
    """One namespace for each node, and one for the daemon with a bridge to all of them. The nodes have a second
    network among themselves, for their ranks, with addresses of its own (`data_address`)."""

    def __init__(self, tag: str, nodes: list[str]) -> None:
        self.hub = f"imgd-{tag}-hub"
        self.names = {node: f"imgd-{tag}-{node}" for node in nodes}
        self.address = {"hub": "10.77.0.1", **{n: f"10.77.0.{10 + i}" for i, n in enumerate(nodes)}}
        self.data_address = {n: f"10.78.0.{10 + i}" for i, n in enumerate(nodes)}
        ip("netns", "add", self.hub)
        ip("-n", self.hub, "link", "set", "lo", "up")
        for bridge in ("br0", "br1"):
            ip("-n", self.hub, "link", "add", bridge, "type", "bridge")
            ip("-n", self.hub, "link", "set", bridge, "up")
        ip("-n", self.hub, "addr", "add", "10.77.0.1/24", "dev", "br0")
        for node, name in self.names.items():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            self._connect(node, "to", "br0", "eth0", self.address[node])
            self._connect(node, "data", "br1", "eth1", self.data_address[node])

    def _connect(self, node: str, end: str, bridge: str, interface: str, address: str) -> None:
        name = self.names[node]
        ip("-n", self.hub, "link", "add", f"{end}-{node}", "type", "veth", "peer", "name", interface, "netns", name)
        ip("-n", self.hub, "link", "set", f"{end}-{node}", "master", bridge, "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
        ip("-n", name, "link", "set", interface, "up")

    def command(self, node: str) -> list[str]:
        """What to put before a command for it to run on the node."""
        return ["ip", "netns", "exec", self.names[node]]

    def cut(self, node: str) -> None:
        """Takes the node off both networks; nothing tells anybody."""
        self.cut_data(node)
        ip("-n", self.hub, "link", "set", f"to-{node}", "down")

    def cut_data(self, node: str) -> None:
        """Takes it off the ranks' network alone: it still reaches the daemon."""
        ip("-n", self.hub, "link", "set", f"data-{node}", "down")

    def mend(self, node: str) -> None:
        for end in ("to", "data"):
            ip("-n", self.hub, "link", "set", f"{end}-{node}", "up")

    def close(self) -> None:
        for name in [*self.names.values(), self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
