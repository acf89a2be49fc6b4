"""A Ray cluster of several raylets on this machine, and what its processes take."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

OBJECT_STORE_BYTES = 80 << 20
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def running(nodes: int, cpus: int = 1) -> Iterator[Cluster]:
    """Connected to, and ended."""
    options = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    try:
        for _ in range(nodes - 1):
            add(cluster, cpus)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add(cluster: Cluster, cpus: int = 1) -> Any:
    return cluster.add_node(num_cpus=cpus, object_store_memory=OBJECT_STORE_BYTES)


class _Holder:
    def hold(self, mib: int) -> int:
        self.held = bytearray(mib << 20)
        self.held[::4096] = b"x" * len(self.held[::4096])
        return os.getpid()


Holder: Any = ray.remote(num_cpus=1)(_Holder)
"""Holds so much, on a node of its own."""


def command_lines() -> dict[int, str]:
    """Of all processes of the machine."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                )
            except (OSError, UnicodeDecodeError):
                continue
    return found


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no PSS of {pid}")


def cpu_seconds(pid: int) -> float:
    """Of a process and the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def driver_environment() -> dict[str, str]:
    """For a program that uses this Python."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
