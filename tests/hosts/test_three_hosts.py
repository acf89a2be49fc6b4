"""A job on three hosts: one is lost in the middle with its disk, one joins late."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import REPOSITORY, recordings, told
from three_hosts import ENVIRONMENT, Host, hosts
from waiting import until

ROTATE_SECONDS = 10
LAST_ROW = """
import duckdb, sys
print(duckdb.sql(f"SELECT max(epoch_ns(ts)) / 1e9 FROM '{sys.argv[1]}'").fetchall()[0][0])
"""
TOLERANCE = 0.01


class Driver:
    """A program on the first host, that connects to Ray there."""

    def __init__(self, host: Host) -> None:
        program = str(Path(__file__).with_name("driver.py"))
        address = f"{host.address}:6399"
        self.process = subprocess.Popen(
            host.inside(sys.executable, program, address),
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.heard() == "connected"

    def do(self, name: str, *words: Any, **options: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, words, options]) + "\n")
        self.process.stdin.flush()
        return self.heard()

    def heard(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the driver has ended"
        return json.loads(line)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def polling(all_hosts: list[Host]) -> Iterator[dict[float, int]]:
    """What the kernel says that all hosts hold together, by the time."""
    polled: dict[float, int] = {}
    has_ended = threading.Event()

    def poll() -> None:
        while not has_ended.wait(0.1):
            before = time.time()
            running = [host for host in all_hosts if host.cgroup.exists()]
            sums = sum(host.anonymous_bytes() for host in running)
            polled[(before + time.time()) / 2] = sums

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield polled
    finally:
        has_ended.set()
        thread.join()


def steady(polled: dict[float, int]) -> dict[int, int]:
    """What was held at the end of each second around which it hardly changed."""
    found = {}
    for second in range(int(min(polled)) + 2, int(max(polled)) - 2):
        near = [held for at, held in polled.items() if abs(at - (second + 1)) < 1.0]
        if len(near) > 5 and max(near) - min(near) < TOLERANCE / 4 * max(near):
            found[second] = near[len(near) // 2]
    return found


def sums_of(root: Path) -> dict[int, int]:
    """The answer of the page for DuckDB."""
    code = (
        "import sys, json, pathlib; from recipes import sums_of;"
        "print(json.dumps(sums_of('DuckDB', pathlib.Path(sys.argv[1]))))"
    )
    path = str(REPOSITORY / "python/tests")
    said = told(sys.executable, "-c", code, root, PYTHONPATH=path)
    return {int(second): held for second, held in json.loads(said.splitlines()[-1]).items()}


def test_three_hosts_one_killed_one_late(program: Path) -> None:
    with hosts(3) as (root, made):
        first, killed, late = made
        for host in (first, killed):
            host.start_ray(first)
        driver = Driver(first)
        with polling(made) as polled:
            began = driver.do(
                "start", str(root), run="try", program=str(program), rotate=f"{ROTATE_SECONDS}s"
            )
            assert [node["state"] for node in began[2]] == ["recording"] * 2
            driver.do("hold", first.name, 300)
            time.sleep(4)
            driver.do("hold", killed.name, 500)
            time.sleep(2 * ROTATE_SECONDS + 5)
            killed_at = time.time()
            killed.kill()
            late.start_ray(first)
            until(
                lambda: (
                    {node["host"]: node["state"] for node in driver.do("status")["nodes"]}
                    == {first.name: "recording", killed.name: "dead", late.name: "recording"}
                ),
                "the killed one is dead and the late one recorded",
            )
            driver.do("hold", late.name, 400)
            # Only who is silent for longer than a minute is called silent.
            time.sleep(max(6.0, killed_at + 65 - time.time()))
        ended = {node["host"]: node for node in driver.do("stop")}
        assert ended[first.name]["state"] == ended[late.name]["state"] == "ended", ended
        driver.end()

        found = recordings(root)
        assert set(found) == {("try", host.name) for host in made}
        assert found["try", killed.name]["state"] != "closed"
        check_the_sums(root, polled, killed_at)
        check_the_report(program, root, polled, killed_at)


def check_the_sums(root: Path, polled: dict[float, int], killed_at: float) -> None:
    """Second by second the recordings say what the kernel said, while nobody was lost yet."""
    sums = sums_of(root)
    compared = {
        second: held
        for second, held in steady(polled).items()
        if min(sums) < second < killed_at - ROTATE_SECONDS - 2
    }
    assert len(compared) > 8
    for second, held in compared.items():
        # Nothing changed since the last second that has a row.
        at = max(known for known in sums if known <= second)
        off = sums[at] / held - 1
        assert abs(off) <= TOLERANCE, f"{off:.2%} at {second - min(sums)} s"
    worst = max(
        abs(sums[max(known for known in sums if known <= second)] / held - 1)
        for second, held in compared.items()
    )
    print(f"{len(compared)} seconds compared with the memcgs: off by at most {worst:.2%}")


def check_the_report(program: Path, root: Path, polled: dict[float, int], killed_at: float) -> None:
    """The first lines tell of the host that was lost, and the peak is that of one instant."""
    head = told(program, "report", root).split("\n\n")[0]
    print(head)
    assert "node2 was not heard from after" in " ".join(head.split())
    report = json.loads(told(program, "report", root, "--format", "json"))
    assert {host["host"] for host in report["hosts"]} == {"node1", "node2", "node3"}
    peak = report["peak"]
    at = peak["at"]["wall_ns"] / 1e9
    near = [held for time, held in polled.items() if at <= time < at + 1.5]
    off = peak["bytes"] / max(near) - 1
    print(f"the peak is off by {off:.2%}")
    assert abs(off) <= TOLERANCE
    assert peak["at_least_bytes"] <= peak["bytes"] <= peak["at_most_bytes"]

    last = told(
        sys.executable, "-c", LAST_ROW, str(root / "run=try/host=node2/rec=*/mem/*.parquet")
    )
    lost = killed_at - float(last)
    print(f"of the host that was lost, its last {lost:.1f} s are")
    assert lost <= ROTATE_SECONDS + 3
