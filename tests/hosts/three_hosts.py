"""Hosts on one machine: network, mount and UTS namespaces and a memory cgroup each, on a network
that leads nowhere else. Process ids are the machine's: in a pid namespace memtrace only polls."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from waiting import until

_CGROUPS = Path("/sys/fs/cgroup/memory")
_NETWORK = "10.213.87"
_PORT = 6399
_RAY = str(Path(sys.executable).with_name("ray"))
# Nobody else is on this network, and each host would make a token of its own.
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled"}


class Host:
    """One of them."""

    def __init__(self, number: int, place: Path, prefix: str) -> None:
        self.name = f"node{number}"
        self.address = f"{_NETWORK}.{number}"
        self.namespace = f"{prefix}-{self.name}"
        # Of its own: Ray's session, and what its recorder writes.
        self.tmp, self.recordings = place / self.name / "tmp", place / self.name / "recordings"
        self.cgroup = _CGROUPS / prefix / self.name
        self.ray: subprocess.Popen[bytes] | None = None

    def start_ray(self, head: Host) -> None:
        """As a node of the cluster of `head`."""
        for directory in (self.tmp, self.recordings):
            directory.mkdir(parents=True)
        self.cgroup.mkdir(parents=True)
        joins = (
            ["--head", f"--port={_PORT}", "--include-dashboard=false"]
            if self is head
            else [f"--address={head.address}:{_PORT}"]
        )
        ray = [_RAY, "start", *joins, f"--node-ip-address={self.address}", "--num-cpus=1"]
        ray += ["--object-store-memory=80000000", "--disable-usage-stats", "--block"]
        inside = (
            f"echo $$ >{self.cgroup}/cgroup.procs && hostname {self.name}"
            f" && mount --bind {self.tmp} /tmp"
            f" && mkdir -p /var/lib/memtrace && mount --bind {self.recordings} /var/lib/memtrace"
            ' && exec "$@"'
        )
        enter = ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "--uts"]
        log = self.tmp.parent / "ray.log"
        with open(log, "wb") as output:
            self.ray = subprocess.Popen(
                [*enter, "sh", "-c", inside, "sh", *ray],
                env=ENVIRONMENT,
                stdout=output,
                stderr=output,
            )
        until(lambda: "Ray runtime started" in log.read_text(), f"Ray runs on {self.name}")

    def inside(self, *command: str) -> list[str]:
        """A command as one of its own, but for the cgroup."""
        assert self.ray is not None
        return ["nsenter", "-t", str(self.ray.pid), "--net", "--mount", "--uts", *command]

    def anonymous_bytes(self) -> int:
        """What the kernel says its processes hold, every page once."""
        lines = (self.cgroup / "memory.stat").read_text().splitlines()
        stat = dict(line.split() for line in lines)
        return int(stat["rss"])

    def kill(self) -> None:
        """As when its power fails: every process at once, and its disk is gone."""
        while pids := (self.cgroup / "cgroup.procs").read_text().split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        if self.ray is not None:
            self.ray.wait()
        shutil.rmtree(self.recordings)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[tuple[Path, list[Host]]]:
    """A directory that all of them see, and the hosts, on which nothing runs yet."""
    # Not below /tmp, of which each has its own.
    place = Path(tempfile.mkdtemp(prefix="memtrace-hosts-", dir="/var/tmp"))
    prefix = f"mt{os.getpid()}"
    switch = f"{prefix}-switch"
    made = [Host(number, place, prefix) for number in range(1, count + 1)]
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for host in made:
            _ip("netns", "add", host.namespace)
            ends = ("eth0", "netns", host.namespace, "type", "veth", "peer", "name", host.name)
            _ip("link", "add", *ends, "netns", switch)
            _ip("-n", switch, "link", "set", host.name, "master", "bridge", "up")
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _ip("-n", host.namespace, "link", "set", link, "up")
        shared = place / "shared"
        shared.mkdir()
        yield shared, made
    finally:
        for host in made:
            if host.cgroup.exists():
                if host.recordings.exists():
                    host.kill()
                until(partial(_is_removed, host.cgroup), f"the cgroup of {host.name} is removed")
        with contextlib.suppress(FileNotFoundError):
            (_CGROUPS / prefix).rmdir()
        for name in [*(host.namespace for host in made), switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        shutil.rmtree(place)


def _is_removed(cgroup: Path) -> bool:
    """The last process is gone some time after it was waited for."""
    try:
        cgroup.rmdir()
    except OSError:
        return False
    return True


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
