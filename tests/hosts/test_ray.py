"""`memtrace.ray` on real clusters of several raylets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import memtrace.ray
import pytest
import ray

from conftest import recordings
from ray_cluster import (
    Holder,
    add,
    command_lines,
    cpu_seconds,
    driver_environment,
    pss_mib,
    running,
)
from waiting import until

# What the launcher may take on a node beside the recorder.
PSS_MIB, CPU_SHARE = 60.0, 0.002
WATCHES = "do sleep 5; done"


def by_host(told: list[dict[str, Any]]) -> dict[str, str]:
    return {node["host"]: node["state"] for node in told}


def status() -> dict[str, str]:
    told = memtrace.ray.status()
    assert told is not None
    return by_host(told["nodes"])


def test_nodes_are_recorded_joined_and_told_when_they_are_gone(
    tmp_path: Path, program: Path
) -> None:
    root = tmp_path / "root"
    with running(nodes=2) as cluster:
        recording = memtrace.ray.record(str(root), run="try", program=str(program), rotate="5s")
        with recording as begun:
            assert list(by_host(begun.nodes).values()) == ["recording"] * 2, begun.nodes
            assert all("recording with" in node["says"][-1] for node in begun.nodes)
            holders = [Holder.remote() for _ in range(2)]
            ray.get([holder.hold.remote(100) for holder in holders])

            late = add(cluster)
            until(lambda: list(status().values()) == ["recording"] * 3, "the late one is recorded")
            hosts = set(status())
            cluster.remove_node(late)
            until(lambda: sorted(status().values()).count("dead") == 1, "the dead one is told")
            # No recorder outlives its raylet.
            (dead,) = (host for host, state in status().items() if state == "dead")
            until(
                lambda: not any(f"--host {dead} " in line for line in command_lines().values()),
                "the recorder of the dead node has ended",
            )
            with pytest.raises(RuntimeError, match="recorded already"):
                memtrace.ray.start(str(root))
        assert memtrace.ray.status() is None

    found = recordings(root)
    assert set(found) == {("try", host) for host in hosts}
    for info in found.values():
        assert info["state"] == "closed"
        # Of its own raylet alone: three share this machine.
        assert info["target"]["kind"] == "pids"
    expected = [info["place"]["expected_hosts"] for info in found.values()]
    assert sorted(map(len, expected)) == [2, 2, 3]


def test_a_lone_raylet_is_recorded_by_its_session_with_the_driver(
    tmp_path: Path, program: Path
) -> None:
    with running(nodes=1):
        with memtrace.ray.record(str(tmp_path), program=str(program)) as begun:
            assert begun.run.startswith("session_")
        (info,) = recordings(tmp_path).values()
    assert info["place"]["run"] == begun.run
    assert info["target"] == {
        "kind": "framework",
        "framework": "ray",
        "session": f"/tmp/ray/{begun.run}",
    }


def test_the_launcher_leaves_next_to_nothing_on_a_node(tmp_path: Path, program: Path) -> None:
    with running(nodes=1), memtrace.ray.record(str(tmp_path), program=str(program)):
        until(
            lambda: not any("ray::OnNode" in line for line in command_lines().values()),
            "the worker that started the recorder has ended",
        )
        (watcher,) = (pid for pid, line in command_lines().items() if WATCHES in line)
        children = [pid for pid, line in command_lines().items() if line.strip() == "sleep 5"]
        seconds, before = 30.0, cpu_seconds(watcher)
        pss = pss_mib(watcher) + sum(map(pss_mib, children))
        time.sleep(seconds)
        share = (cpu_seconds(watcher) - before) / seconds
        (controller,) = (pid for pid, line in command_lines().items() if "ray::Contr" in line)
        print(f"launcher on a node: {pss:.1f} MiB PSS, {share:.2%} of a core")
        print(f"controller, one a cluster: {pss_mib(controller):.1f} MiB PSS")
        assert pss <= PSS_MIB
        assert share <= CPU_SHARE


def test_a_node_without_the_program_is_told(tmp_path: Path) -> None:
    with running(nodes=1):
        begun = memtrace.ray.start(str(tmp_path), program="/nowhere/memtrace")
        (node,) = begun.nodes
        assert node["state"] == "failed"
        assert "no program /nowhere/memtrace" in node["says"][0]
        memtrace.ray.stop()


def test_the_command_does_the_same(tmp_path: Path, program: Path) -> None:
    def ray_command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, "ray", *words],
            env={**os.environ, **driver_environment()},
            capture_output=True,
            text=True,
            check=False,
        )

    with running(nodes=1) as cluster:
        at = ("--address", cluster.address)
        nothing = ray_command("status", *at)
        assert (nothing.returncode, nothing.stdout) == (1, "nothing records this cluster\n")
        options = ("--root", str(tmp_path), "--run", "typed", "--program", str(program))
        started = ray_command("start", *at, *options, "--", "--rotate", "5s")
        assert started.returncode == 0, started.stderr
        assert started.stdout.startswith(f"run typed, below {tmp_path}\n")
        again = ray_command("start", *at, *options)
        assert again.returncode == 1
        assert "recorded already" in again.stderr
        assert "recording with" in ray_command("status", *at).stdout
        stopped = ray_command("stop", *at)
        assert stopped.returncode == 0, stopped.stdout
        assert "ended" in stopped.stdout
    (info,) = recordings(tmp_path).values()
    assert info["place"]["rotate_ns"] == 5_000_000_000


def test_a_job_that_is_run_gives_its_status_and_is_recorded(tmp_path: Path, program: Path) -> None:
    job = "import ray; ray.init(); print(ray.get(ray.put(42))); raise SystemExit(5)"
    options = ["--root", str(tmp_path), "--program", str(program)]
    words = ["-m", "memtrace.ray", "run", *options, "--", sys.executable, "-c", job]
    with running(nodes=1) as cluster:
        run = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "RAY_ADDRESS": cluster.address},
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 5, run.stderr
    assert "42" in run.stdout
    (info,) = recordings(tmp_path).values()
    assert info["state"] == "closed"


def test_what_a_block_raises_is_not_hidden_by_a_recording_that_can_not_be_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("nothing records this cluster")

    monkeypatch.setattr(memtrace.ray, "start", lambda root, **_: root)
    monkeypatch.setattr(memtrace.ray, "stop", refuse)
    with pytest.raises(ZeroDivisionError), memtrace.ray.record("root"):
        _ = 1 // 0
    assert "nothing records this cluster" in capsys.readouterr().err
