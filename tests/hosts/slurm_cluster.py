"""A Slurm cluster of two nodes on one machine: Debian's slurmctld, and slurmd twice under names of
their own. Without munge, which keeps strangers out. Each job has a cgroup on each node."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import until

NODES = ("node1", "node2")

_CONFIG = """
ClusterName=try
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=10
{more}
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
_CGROUP_CONFIG = """
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainRAMSpace=yes
"""


class Cluster:
    """One that runs."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self.place = place
        self.environment = environment

    def submit(self, script: Path) -> tuple[int, str]:
        """Runs a job to its end: its id, and its log."""
        command = ["sbatch", "--wait", "--parsable", "--output=job.log", str(script)]
        done = subprocess.run(
            command,
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        log = self.place / "job.log"
        assert done.stdout.strip().isdigit(), done.stderr
        return int(done.stdout), log.read_text() if log.exists() else ""


@contextmanager
def running(place: Path, path: str, more: str = "") -> Iterator[Cluster]:
    """Starts the daemons, and ends them. `path` is what jobs have as PATH; `more` are lines of
    slurm.conf."""
    (place / "state").mkdir()
    for node in NODES:
        (place / f"spool-{node}").mkdir()
    config = place / "slurm.conf"
    words = {"host": socket.gethostname(), "place": place, "ports": _free_ports(3), "more": more}
    config.write_text(_CONFIG.format(**words))
    (place / "cgroup.conf").write_text(_CGROUP_CONFIG)
    environment = {**os.environ, "SLURM_CONF": str(config), "PATH": path}
    daemons = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)]
    started = []
    try:
        for at, daemon in enumerate(daemons):
            with open(place / f"daemon{at}.log", "wb") as log:
                started.append(subprocess.Popen(daemon, env=environment, stdout=log, stderr=log))
        listed = ["sinfo", "--noheader", "--format=%D %t"]
        until(
            lambda: (
                subprocess.run(
                    listed, env=environment, capture_output=True, text=True, check=False
                ).stdout.strip()
                == "2 idle"
            ),
            "both nodes are idle",
        )
        yield Cluster(place, environment)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)
        for node in NODES:
            for group in sorted(Path("/sys/fs/cgroup").glob(f"*/slurm_{node}/**/"), reverse=True):
                group.rmdir()


def _free_ports(count: int) -> list[int]:
    """Taken together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
