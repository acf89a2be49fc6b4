"""What `memtrace export --to perfetto` writes of every recording that reports are tested on, read
by Perfetto's own classes: its figures are the report's."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

NAMES = sorted(path.stem for path in Path(os.environ.get("MEMTRACE_GOLDEN_DIR", "")).glob("*.json"))
KINDS = ("rss", "anon", "file", "shmem", "swap")
BOOTTIME, REALTIME = 6, 1


class Traced:
    """A trace: its tracks by identity, and what happened on each in the order of the file."""

    def __init__(self, data: bytes) -> None:
        trace = protos.Trace()
        trace.ParseFromString(data)
        # What Perfetto does not know it would pass over without a word.
        size = trace.ByteSize()
        trace.DiscardUnknownFields()
        assert trace.ByteSize() == size
        self.tracks: dict[int, Any] = {}
        self.events: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        self.clocks: list[dict[int, int]] = []
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            elif packet.HasField("track_event"):
                event = packet.track_event
                assert event.track_uuid in self.tracks
                self.events[event.track_uuid].append((packet.timestamp, event))
            elif packet.HasField("clock_snapshot"):
                snapshot = packet.clock_snapshot
                assert snapshot.primary_trace_clock == BOOTTIME
                self.clocks.append({clock.clock_id: clock.timestamp for clock in snapshot.clocks})

    def under(self, parent: int, name: str) -> list[int]:
        tracks = self.tracks.values()
        return [one.uuid for one in tracks if (one.parent_uuid, one.name) == (parent, name)]

    def highest(self, parent: int, name: str) -> int | None:
        """The highest value of a counter; nothing where there is none."""
        (*counter,) = self.under(parent, name)
        assert len(counter) <= 1
        return max(event.counter_value for _, event in self.events[counter[0]]) if counter else None

    def begun(self, name: str) -> list[tuple[int, Any]]:
        """The slices on tracks of that name."""
        on = [one.uuid for one in self.tracks.values() if one.name == name]
        events = [event for uuid in on for event in self.events[uuid]]
        return [event for event in events if event[1].type == protos.TrackEvent.TYPE_SLICE_BEGIN]


def notes(event: Any) -> dict[str, Any]:
    return {note.name: getattr(note, note.WhichOneof("value")) for note in event.debug_annotations}


@pytest.fixture(params=NAMES or ["none are written"])
def told(request: pytest.FixtureRequest, golden: Path) -> tuple[Traced, Any]:
    report = json.loads((golden / f"{request.param}.json").read_text())
    return Traced((golden / f"{request.param}.pftrace").read_bytes()), report


def test_every_process_held_at_most_what_the_report_says(told: tuple[Traced, Any]) -> None:
    traced, report = told
    processes = {
        (track.process.pid, track.process.start_timestamp_ns): track.uuid
        for track in traced.tracks.values()
        if track.HasField("process")
    }
    recorded = [process for process in report["processes"] if process["pid"] is not None]
    pids = {process["upid"]: process["pid"] for process in recorded}
    assert len(processes) == len(recorded)
    for process in recorded:
        track = processes[process["pid"], process["start"]["boot_ns"]]
        descriptor = traced.tracks[track].process
        assert list(descriptor.cmdline) == [line for line in [process["cmdline"]] if line]
        for kind in KINDS:
            highest = process["peak"]["series"][f"{kind}_bytes"]
            if kind == "rss" and highest is not None:
                assert traced.highest(track, kind) == (highest or None), process["name"]
        ((lifetime,),) = [traced.events[uuid][:1] for uuid in traced.under(track, "lifetime")]
        said = notes(lifetime[1])
        assert lifetime[1].name == process["name"]
        assert said.get("peak.rss_bytes") == process["peak"]["rss_bytes"]
        assert said.get("parent_pid") == pids.get(process["parent_upid"])
        assert said["ended"] == process["ended"]


def test_every_role_held_at_most_what_the_report_says(told: tuple[Traced, Any]) -> None:
    traced, report = told
    (*roles,) = traced.under(0, "roles")
    for role in report["roles"]:
        (*track,) = traced.under(roles[0], role["name"]) if roles else ()
        for kind in KINDS:
            peak = role["kinds"][kind]["peak_bytes"] or None
            highest = traced.highest(track[0], f"sum of {kind}") if track else None
            if kind == "rss" and role["process_count"] == 1:
                # Of one process the report has the kernel's own figure.
                assert (highest or 0) <= (peak or 0)
            else:
                assert highest == peak, (role["name"], kind)


def test_phases_kills_and_requests_are_all_there(told: tuple[Traced, Any]) -> None:
    traced, report = told
    instants = [
        event
        for events in traced.events.values()
        for _, event in events
        if event.type == protos.TrackEvent.TYPE_INSTANT
    ]
    marks = [event for event in instants if event.categories[0] in ("mark", "end")]
    phases = report["phases"]["count"] if report["phases"] else 0
    assert len(traced.begun("phases")) + len(marks) == phases
    kills = [event for event in instants if event.categories[0] == "oom"]
    assert len(kills) == len(report["oom_kills"])
    refused = [event for event in instants if event.categories[0] == "cuda"]
    cuda = (report["gpu"] or {}).get("cuda", {"refusals": []})
    assert len(refused) == sum(one["refused_count"] for one in cuda["refusals"])
    if report["conditions"]:
        requests = [event for _, event in traced.begun("under way") if event.name != FIRST_TOKEN]
        assert len(requests) >= sum(one["request_count"] for one in report["conditions"]["list"])


FIRST_TOKEN = "to the first token"


def test_wall_time_is_known_by_the_clocks(told: tuple[Traced, Any]) -> None:
    traced, report = told
    for clocks in traced.clocks:
        start = report["recording"]["start"]
        wall = datetime.fromisoformat(start["time"].replace("Z", "+00:00"))
        offset = clocks[REALTIME] - clocks[BOOTTIME]
        assert offset == int(wall.timestamp()) * 1_000_000_000 - start["boot_ns"]
