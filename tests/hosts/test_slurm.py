"""The scripts of docs/slurm and the job of docs/hosts.md, on two nodes that are one machine."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from conftest import DOCS, recordings
from slurm_cluster import NODES, Cluster, running
from waiting import until

TRAIN = """
import os, sys, time
held = bytearray(int(sys.argv[1]) << 20)
held[::4096] = b"x" * len(held[::4096])
time.sleep(3)
sys.exit(int(sys.argv[2]))
"""


def job_script(cluster: Cluster, root: Path, mib: int, status: int) -> Path:
    """The job of the page, with the root and the program of this test."""
    (text,) = re.findall(
        r"^```sh\n(#!.*?)^```$", (DOCS / "hosts.md").read_text(), re.DOTALL | re.MULTILINE
    )
    for old, new in (
        ("root=$HOME/memory", f"root={root}"),
        ("python3 train.py", f"python3 {cluster.place}/train.py {mib} {status}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (cluster.place / "train.py").write_text(TRAIN)
    script = cluster.place / "job.sh"
    script.write_text(text)
    return script


def test_a_job_is_recorded_on_both_nodes_and_its_log_ends_with_the_report(
    tmp_path: Path, path: str
) -> None:
    root = tmp_path / "root"
    with running(tmp_path, path) as cluster:
        script = job_script(cluster, root, mib=200, status=0)
        job, log = cluster.submit(script)
    found = recordings(root)
    assert set(found) == {(str(job), node) for node in NODES}, log
    for info in found.values():
        assert info["state"] == "closed"
        assert info["place"]["expected_hosts"] == list(NODES)
        # Of this node's cgroup, not of the machine that both nodes are.
        assert re.search(rf"/job_{job}$", info["target"]["path"])
    assert not list(tmp_path.glob(".memtrace-stop*"))
    for node in NODES:
        assert node in log
    assert "python3" in log
    # The processes of each node held 200 MiB, and no recording has those of the other.
    assert 2 * 200 <= peak_mib(log) < 3 * 200, log


def test_the_jobs_own_status_is_passed_on(tmp_path: Path, path: str) -> None:
    with running(tmp_path, path) as cluster:
        script = job_script(cluster, tmp_path / "root", mib=1, status=7)
        script.write_text(script.read_text() + "\n")
        sacct = tmp_path / "status"
        script.write_text(script.read_text().replace('exit "$status"', f'echo "$status" >{sacct}'))
        cluster.submit(script)
    assert sacct.read_text().strip() == "7"


def test_the_prolog_records_what_no_script_asks_for(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    # slurmd gives a prolog little of its own environment.
    prolog = tmp_path / "prolog"
    prolog.write_text(
        f'#!/bin/sh\nexport PATH={path} MEMTRACE_ROOT={root}\nexec memtrace-job "$@"\n'
    )
    prolog.chmod(prolog.stat().st_mode | stat.S_IXUSR)
    more = f"Prolog={prolog}\nEpilog={prolog}\nPrologFlags=Contain"
    with running(tmp_path, path, more) as cluster:
        (tmp_path / "train.py").write_text(TRAIN)
        script = tmp_path / "plain.sh"
        head = "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1\n"
        script.write_text(f"{head}srun python3 {tmp_path}/train.py 50 0\n")
        job, log = cluster.submit(script)
        until(
            lambda: [info["state"] for info in recordings(root).values()] == ["closed", "closed"],
            "both recordings are closed",
        )
    assert set(recordings(root)) == {(str(job), node) for node in NODES}, log


def peak_mib(log: str) -> float:
    """The peak that the report's head says."""
    match = re.search(r"Peak of all hosts: ([\d.,]+) (MiB|GiB)", log)
    if match is None:
        pytest.fail(f"no peak in:\n{log}")
    return float(match[1].replace(",", "")) * {"MiB": 1, "GiB": 1024}[match[2]]
