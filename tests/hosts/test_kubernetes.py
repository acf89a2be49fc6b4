"""The two containers of docs/kubernetes, as processes: what one records the other carries away."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from conftest import DOCS, recordings
from waiting import until


def arguments(container: dict[str, Any], words: dict[str, str]) -> list[str]:
    """Of a container, with the words of this test."""
    made = []
    for argument in container["args"]:
        for old, new in words.items():
            argument = argument.replace(old, new)
        assert "$(" not in argument
        made.append(argument)
    return made


def test_what_is_recorded_is_carried_to_the_root_and_removed(tmp_path: Path, program: Path) -> None:
    manifest = yaml.safe_load((DOCS / "kubernetes" / "daemonset.yaml").read_text())
    record, push = manifest["spec"]["template"]["spec"]["containers"]
    here, root = tmp_path / "node", tmp_path / "bucket"
    root.mkdir()
    here.mkdir()
    words = {
        "/var/lib/memtrace": str(here),
        "--every=24h": "--duration=7s",
        "$(ROOT)": root.as_uri(),
        "$(RUN)": "cluster",
        "$(NODE)": "node1",
    }
    # As uid 0 without a capability.
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    pusher = subprocess.Popen([*bare, str(program), *arguments(push, words)])
    try:
        recorder = [str(program), *arguments(record, words)]
        subprocess.run(recorder, check=True, timeout=120)
        until(
            lambda: [info["state"] for info in recordings(root).values()] == ["closed"],
            "the closed recording has arrived",
        )
        assert set(recordings(root)) == {("cluster", "node1")}
        until(
            lambda: not list(here.rglob("*.parquet")),
            "what has arrived is removed",
        )
    finally:
        pusher.terminate()
        pusher.wait(timeout=30)
