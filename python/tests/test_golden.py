"""The report and what this package reads agree, over every recording that reports are tested on:
phases, peaks, and sums by process and by role."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import memtrace

pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("polars")

NAMES = sorted(path.stem for path in Path(os.environ.get("MEMTRACE_GOLDEN_DIR", "")).glob("*.json"))
KINDS = ("rss", "anon", "file", "shmem", "swap")
COLUMNS = ("rss_bytes", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "swap_bytes")


@pytest.fixture(params=NAMES or ["none are written"])
def told(request: pytest.FixtureRequest, golden: Path) -> tuple[Any, Any]:
    """A recording as this package reads it, and the report of it."""
    report = json.loads((golden / f"{request.param}.json").read_text())
    return memtrace.load(golden / request.param), report


def rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*map(frame.column, columns)))


def moment(recording: Any, at: Any) -> float:
    return float(at["boot_ns"] - recording.start_ns) / 1e9


def test_most_was_held_then_and_the_sum_of_rss_was_highest_then(told: tuple[Any, Any]) -> None:
    recording, report = told
    bytes_, at = report["sum_of_rss_peak_bytes"], report["sum_of_rss_peak_at"]
    if bytes_ is None:
        with pytest.raises(ValueError, match="no memory"):
            recording.peak()
        return
    peak, most = recording.peak(), report["peak"]
    assert peak.boot_ns == most["at"]["boot_ns"]
    assert peak.rss_bytes == (most["sum_of_rss_bytes"] or 0)
    if report["held_peak"] is not None:
        assert peak.held_bytes == report["held_peak"]["bytes"]
        assert peak.held_at_most_bytes == most["held_at_most_bytes"]
    with duckdb.connect() as connection:
        connection.execute(memtrace.duckdb_macros())
        path = str(recording.path)
        sums = connection.sql(f"FROM sum_over_time('{path}')").pl().rows()
        assert (max(rss for _, rss in sums), at["boot_ns"]) == (bytes_, min_of_max(sums))
        held = connection.sql(f"SELECT max(held_bytes) FROM held_over_time('{path}')").pl().rows()
        assert held == [(peak.held_bytes,)]


def test_stacks_add_up_to_what_the_report_says(told: tuple[Any, Any]) -> None:
    recording, report = told
    keys = ("sample_count", "grown_bytes", "resident_bytes", "returned_bytes")
    sums: dict[int, list[int]] = {}
    for upid, *amounts in rows(recording.stacks(), "upid", *keys):
        before = sums.setdefault(upid, [0] * len(keys))
        sums[upid] = [one + other for one, other in zip(before, amounts)]
    assert sums == {one["upid"]: [one[key] for key in keys] for one in report["allocations"]}
    for process in report["allocations"]:
        frame = process["sites"][0]["frame"]
        stacks = rows(recording.stacks(), "upid", "frames")
        stack = next(stack for upid, stack in stacks if upid == process["upid"])
        assert frame["function"] in stack


def min_of_max(sums: list[tuple[int, int]]) -> int:
    return min(at for at, rss in sums if rss == max(rss for _, rss in sums))


def test_everybody_held_then_what_the_report_says(told: tuple[Any, Any]) -> None:
    recording, report = told
    for state in filter(None, (report["peak"], report["at"])):
        held = rows(recording.at(moment(recording, state["at"])), "upid", *COLUMNS)
        held = [row for row in held if row[1] != 0]
        keys = [f"{kind}_bytes" for kind in KINDS]
        assert held == [tuple(each[key] for key in ("upid", *keys)) for each in state["holders"]]
        assert sum(row[1] or 0 for row in held) == (state["sum_of_rss_bytes"] or 0)


def test_duckdb_says_who_held_what_as_python_does(told: tuple[Any, Any]) -> None:
    recording, report = told
    states = filter(None, (report["peak"], report["at"]))
    mem = rows(recording.mem, "boot_ns", "source") if "mem" in recording.tables else []
    times = {state["at"]["boot_ns"] for state in states}
    times.update(time for time, source in mem if source == "self")
    for time in sorted(times):
        python = rows(recording.at((time - recording.start_ns) / 1e9), "upid", "name", *COLUMNS)
        assert python == held_at(recording, time), time


def held_at(recording: Any, time: int) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute(memtrace.duckdb_macros())
        columns = ", ".join(("upid", "name", *COLUMNS))
        path = str(recording.path)
        return connection.sql(f"SELECT {columns} FROM held_at('{path}', {time})").pl().rows()  # type: ignore[no-any-return]


def test_every_role_held_at_the_peak_what_the_report_says(told: tuple[Any, Any]) -> None:
    recording, report = told
    if report["peak"] is None:
        return
    frame = recording.at(moment(recording, report["peak"]["at"]), by="role")
    columns = ("name", "process_count", *COLUMNS)
    held = {row[0]: row[1:] for row in rows(frame, *columns) if row[2]}
    expected = {
        role["name"]: (
            role["at_peak"]["process_count"],
            *(role["at_peak"][f"sum_of_{kind}_bytes"] for kind in KINDS),
        )
        for role in report["roles"]
        # Of whom only memory was recorded, the table has no role.
        if role["at_peak"]["sum_of_rss_bytes"] and role["name"] != "[unknown]"
    }
    assert held == expected
    once = dict(rows(frame, "name", "held_bytes"))
    for role in report["roles"]:
        host = role["at_peak"]["host_bytes"]
        if host is not None and role["name"] in expected:
            # A row stands until a role holds something else by so much.
            assert abs(once[role["name"]] - host) <= max(1 << 20, host / 100), role["name"]


def test_a_phase_cost_what_the_report_says(told: tuple[Any, Any]) -> None:
    recording, report = told
    phases = recording.phases().to_arrow().to_pylist()
    told_phases = report["phases"]
    assert len(phases) == (told_phases["count"] if told_phases else 0)
    for line in told_phases["lines"] if told_phases else ():
        if "count" in line:
            many(line, phases)
        else:
            one(line, phases)


def boot_ns(at: Any) -> int | None:
    return None if at is None else int(at["boot_ns"])


def one(line: Any, phases: list[Any]) -> None:
    times = (boot_ns(line["begin"]), line["end"]["boot_ns"])
    (phase,) = (
        phase
        for phase in phases
        if (phase["name"], phase["upid"]) == (line["name"], line["upid"])
        and (phase["begin_boot_ns"], phase["end_boot_ns"]) == times
    )
    for key in ("kind", "depth", "step", "duration_ns", "ended_by", "exact_peak_bytes"):
        assert phase[key] == line[key], key
    assert (phase["tgid"], phase["process_name"]) == (line["pid"], line["process_name"])
    assert json.loads(phase["attributes"] or "{}") == line["attributes"]
    for prefix, stretch in (("", line["own"]), ("tree_", line["tree"])):
        for place in ("begin", "end", "delta") if stretch else ():
            assert phase[f"{prefix}rss_{place}_bytes"] == stretch[place]["rss_bytes"]
        for place in ("begin", "end") if stretch else ():
            assert phase[f"{prefix}rss_anon_{place}_bytes"] == stretch[place]["anon_bytes"]
        if stretch:
            assert phase[f"{prefix}rss_peak_bytes"] == stretch["peak_rss_bytes"]
            assert phase[f"{prefix}rss_peak_boot_ns"] == boot_ns(stretch["peak_at"])
    for prefix in ("held", "gpu", "page_cache"):
        for place in ("begin", "end", "peak"):
            expected = line[prefix] and line[prefix][f"{place}_bytes"]
            assert phase[f"{prefix}_{place}_bytes"] == expected, (prefix, place)


def many(line: Any, phases: list[Any]) -> None:
    """A line for many phases: they are those between its begin and its end that share its name,
    but for a number."""
    before, _, after = line["name"].partition("<N>")
    mine = [
        phase
        for phase in phases
        if phase["name"].startswith(before)
        and phase["name"].endswith(after)
        and line["upid"] in (None, phase["upid"])
        and line["begin"]["boot_ns"] <= (phase["begin_boot_ns"] or phase["end_boot_ns"])
        and phase["end_boot_ns"] <= line["end"]["boot_ns"]
        and phase["kind"] == line["kind"]
    ]
    assert len(mine) == line["count"], line["name"]
    for prefix, measures in (("", line["own"]), ("tree_", line["tree"])):
        if measures and measures["delta"]:
            deltas = [phase[f"{prefix}rss_delta_bytes"] for phase in mine]
            known = [delta for delta in deltas if delta is not None]
            told = measures["delta"]
            assert (len(known), sum(known)) == (told["known_count"], told["sum_bytes"])
            highest = max(phase[f"{prefix}rss_peak_bytes"] or 0 for phase in mine)
            assert highest == measures["peak_rss_bytes"]
