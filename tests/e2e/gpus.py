"""Agents with scripted GPUs: tests/ has a library that stands for NVML and does what a file says."""

from __future__ import annotations

from harness import BIN, Cluster

_EACH = "memory * 85899345920 1073741824\npower * 300000\ntemperature * 60\nclock * 1980\nenergy * 1000 600000\n" \
        "memory_clock * 2619\npcie_tx * 1000\npcie_rx * 2000\nnvlink_tx * 3000\nnvlink_rx * 4000\n" \
        "ecc * 0\ncorrected * 2\npending * 0\nfailed * 0\n"  # fmt: skip
WELL = f"count 2\n{_EACH}util 0 0\nutil 1 90\nthrottle * 4\n"
# GPU 0 is held back by heat, 2 has had an Xid of the hardware, of 3 the power can't be read, 4 has a memory error.
ILL = f"count 8\n{_EACH}util * 0\nthrottle 0 64\nthrottle 1 0\nxid 2 79\nfail power 3 999\necc 4 {'0 ' * 20}2\n"


def gpu_agent(cluster: Cluster, name: str, script: str, *args: str) -> None:
    path = cluster.root / f"{name}.nvml"
    path.write_text(script)
    library = next(BIN.parent.glob("**/libfake_nvml.so"))
    cluster.start_agent(name, "--metrics-listen", "127.0.0.1:0", "--nvml", str(library), *args, slots=0,
                        prefix=["env", f"IMGD_FAKE_NVML_SCRIPT={path}"])  # fmt: skip
