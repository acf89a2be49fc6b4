"""Reading a recording: a real one, cut-off ones, and small ones with known answers.

data/training was made by `memtrace record -- python3.11 -S train.py`, and
data/training-peak.json is the peak of `memtrace report --format json` for it.
"""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any, Optional

import pytest

import memtrace

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DATA = Path(__file__).parent / "data"
TRAINING = DATA / "training"
SECOND = 1_000_000_000


def test_every_table_is_there_by_name() -> None:
    recording = memtrace.load(TRAINING)
    assert {"process", "mem", "mark", "diag"} <= set(recording.tables)
    assert len(recording.process) == 7
    assert recording["mem"] is recording.mem
    assert recording.problems == []
    assert "mem" in dir(recording)
    with pytest.raises(AttributeError, match="there are: cgroup_mem"):
        _ = recording.no_such_table


def test_a_table_takes_the_form_that_is_asked_for() -> None:
    table = memtrace.load(str(TRAINING)).process
    assert table.to_arrow().num_rows == len(table) == 7
    assert pa.table(table).num_rows == 7
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    assert isinstance(table.to_polars(), polars.DataFrame)
    assert polars.DataFrame(table).height == 7
    assert len(table.duckdb().fetchall()) == 7


def test_the_peak_is_that_of_the_report() -> None:
    expected = json.loads((DATA / "training-peak.json").read_text())
    peak = memtrace.load(TRAINING).peak()
    assert peak.boot_ns == expected["boot_ns"]
    assert peak.rss_bytes == expected["sum_of_rss_bytes"]
    held = zip(peak.processes.column("upid"), peak.processes.column("rss_bytes"))
    assert list(held) == [(each["upid"], each["rss_bytes"]) for each in expected["holders"]]
    assert peak.ts.isoformat() == "2026-11-21T08:24:39.107943+00:00"


def test_the_phases_of_the_program_have_their_memory() -> None:
    phases = memtrace.load(TRAINING).phases()
    names = phases.column("name")
    steps = [f"step_{n}_{stage}" for n in range(3) for stage in ("rollout", "update")]
    assert names == ["load_model", *steps]
    deltas = dict(zip(names, phases.column("rss_delta_bytes")))
    # Each rollout keeps 10 MiB, an update gives all back.
    for n in range(3):
        assert deltas[f"step_{n}_rollout"] == 10 << 20
        assert deltas[f"step_{n}_update"] == 0
    attributes = json.loads(phases.column("attributes")[0])
    # What `peak` measured inside of the process, and what the recorder saw from outside.
    assert attributes["peak_bytes"] == phases.column("rss_peak_bytes")[0]
    tree, own = phases.column("tree_rss_peak_bytes"), phases.column("rss_peak_bytes")
    assert tree[1] > own[1] + (90 << 20)


def test_a_moment_has_many_forms() -> None:
    recording = memtrace.load(TRAINING)
    start = datetime.datetime(2026, 11, 21, 8, 24, 32, 759165, tzinfo=datetime.timezone.utc)
    moments: list[Any] = [
        7,
        7.0,
        "+7s",
        "7s",
        "+0m7s",
        "7000ms",
        datetime.timedelta(seconds=7),
        start + datetime.timedelta(seconds=7),
        (start + datetime.timedelta(seconds=7)).replace(tzinfo=None),
        "2026-11-21T08:24:39.759Z",
        "2026-11-21T09:24:39.759+01:00",
    ]
    for moment in moments:
        assert recording.at(moment).column("tgid") == [19702], moment
    for moment in ("+5 parsecs", "noon", "", "+1h", -30):
        with pytest.raises(ValueError):
            recording.at(moment)


def test_resampling_keeps_every_process_and_every_peak() -> None:
    recording = memtrace.load(TRAINING)
    table = recording.resample("1s")
    ticks = sorted(set(table.column("boot_ns")))
    assert {later - before for before, later in zip(ticks, ticks[1:])} == {SECOND}
    rows = list(zip(*map(table.column, ("upid", "boot_ns", "rss_bytes", "rss_max_bytes"))))
    assert {row[0] for row in rows} == set(recording.process.column("upid"))
    for upid, curve in recording.curves().items():
        mine = [row for row in rows if row[0] == upid]
        assert max(row[3] for row in mine) == max(rss or 0 for rss, *_ in curve.held)
        for _, tick, rss, _ in mine:
            held = curve.at(tick)
            assert held is not None
            assert held[0] == rss
    assert len(recording.resample(0.5)) > len(table)
    for every in (0, "0s", "x", "5 lightyears"):
        with pytest.raises(ValueError):
            recording.resample(every)


def test_the_plot_stacks_processes_and_names_phases() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = memtrace.load(TRAINING).plot(top=2)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "19702 python3.11 -S train.py"
    assert labels[2] == "5 others"
    texts = [text.get_text() for text in axes.texts]
    assert "step_2_rollout" in texts
    assert any(text.startswith("peak 242") for text in texts)
    matplotlib.pyplot.close(axes.figure)


def test_a_plot_names_the_longest_of_phases_that_begin_together(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    marks: list[dict[str, Any]] = []
    for number in range(1_000):
        begin = 1 + number // 2 / 100
        length = 4 if number == 1 else 0.005
        for kind, time in (("begin", begin), ("end", begin + length)):
            mark = {"upid": 1, "name": f"phase {number}", "kind": kind, "span": number + 1}
            marks.append({"boot_ns": int(time * SECOND), **mark})
    marks.sort(key=lambda mark: int(mark["boot_ns"]))
    path = write(tmp_path / "r", [(1, 1, 100, "first")], [(1, 9)], marks)
    axes = memtrace.load(path).plot()
    names = [text.get_text() for text in axes.texts]
    assert "phase 1" in names
    assert "phase 0" not in names
    assert len(names) < 80
    matplotlib.pyplot.close(axes.figure)


# Recordings with known answers. A row of mem: seconds since the start, upid, RSS, source.
Row = tuple[float, int, Optional[int], str]


def write(
    directory: Path,
    mem: list[Row],
    process: list[tuple[int, float | None]],
    mark: list[dict[str, Any]] | None = None,
    state: str = "closed",
    seconds: int = 10,
) -> Path:
    clocks = [{"boot_ns": n * SECOND, "wall_ns": (n + 1000) * SECOND} for n in (0, seconds)]
    run = {
        "schema_version": {"major": 1, "minor": 0},
        "state": state,
        "clocks": clocks,
        "root_tgid": 101,
        "target": {"kind": "command"},
    }
    directory.mkdir(exist_ok=True)
    (directory / "run.json").write_text(json.dumps(run))
    put(directory, "mem", mem_table(mem))
    ends = [None if end is None else int(end * SECOND) for _, end in process]
    columns = {
        "upid": [upid for upid, _ in process],
        "tgid": [100 + upid for upid, _ in process],
        "comm": ["x" for _ in process],
        "exit_boot_ns": pa.array(ends, pa.int64()),
    }
    put(directory, "process", pa.table(columns))
    if mark is not None:
        names = ("boot_ns", "upid", "tgid", "name", "kind", "span", "attributes")
        rows = [{name: row.get(name) for name in names} for row in mark]
        put(directory, "mark", pa.Table.from_pylist(rows))
    return directory


def mem_table(rows: list[Row]) -> Any:
    return pa.table(
        {
            "boot_ns": pa.array([int(time * SECOND) for time, *_ in rows], pa.int64()),
            "upid": pa.array([upid for _, upid, *_ in rows], pa.int64()),
            "rss_bytes": pa.array([rss for _, _, rss, _ in rows], pa.int64()),
            "source": [source for *_, source in rows],
        }
    )


def put(directory: Path, table: str, frame: Any, number: int = 1, cut: int | None = None) -> Path:
    (directory / table).mkdir(exist_ok=True)
    if cut is not None:
        frame = frame.replace_schema_metadata({"memtrace.cut_boot_ns": str(cut)})
    path = directory / table / f"part-{number:05}.parquet"
    pq.write_table(frame, path)
    return path


def put_segment(directory: Path, table: str, frame: Any, number: int, rows: int = 1000) -> Path:
    (directory / "spool").mkdir(exist_ok=True)
    path = directory / "spool" / f"{table}-{number:05}.arrows"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, frame.schema) as stream:
        stream.write_table(frame, max_chunksize=rows)
    return path


def test_a_row_holds_until_the_next_and_nothing_after_the_end(tmp_path: Path) -> None:
    rows: list[Row] = [(1, 1, 100, "first"), (2, 2, 50, "first"), (4, 1, 70, "rss_stat")]
    recording = memtrace.load(write(tmp_path, rows, [(1, None), (2, 3)]))
    expected = {0.5: [], 1.5: [100], 2.5: [100, 50], 3.5: [100], 9: [70]}
    for time, held in expected.items():
        assert recording.at(time).column("rss_bytes") == held, time
    peak = recording.peak()
    assert (peak.rss_bytes, peak.boot_ns) == (150, 2 * SECOND)
    table = recording.resample("1s")
    mine = [
        (boot // SECOND, rss, highest)
        for upid, boot, rss, highest in zip(
            *map(table.column, ("upid", "boot_ns", "rss_bytes", "rss_max_bytes"))
        )
        if upid == 2
    ]
    assert mine == [(2, 50, 50), (3, 0, 50)]


def test_a_process_between_two_instants_shows_by_its_maximum(tmp_path: Path) -> None:
    path = write(tmp_path, [(1.2, 1, 80, "first")], [(1, 1.4)])
    table = memtrace.load(path).resample("1s")
    rows = list(zip(*map(table.column, ("boot_ns", "rss_bytes", "rss_max_bytes"))))
    assert rows == [(2 * SECOND, 0, 80)]


def test_an_unknown_amount_stays_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, None, "first"), (1, 2, 5, "first")], [(1, None), (2, None)])
    recording = memtrace.load(path)
    assert recording.at(2).column("rss_bytes") == [5, None]
    assert recording.peak().rss_bytes == 5
    assert None in recording.resample(5).column("rss_bytes")


def test_gpu_memory_is_told_at_any_time_and_its_books_close(tmp_path: Path) -> None:
    path = write(tmp_path, [(0, 1, 10, "first")], [(1, None)])
    recording = memtrace.load(path)
    assert recording.gpu_at(1).column("device") == []
    assert recording.gpu_devices_at(1).column("device") == []

    def row(time: float, device: str, **more: Any) -> dict[str, Any]:
        return {"boot_ns": int(time * SECOND), "device": device, **more}

    def held(time: float, device: str, tgid: int, used: int | None, **more: Any) -> dict[str, Any]:
        names = ("upid", "comm", "kind", "host_bytes", "gpu_instance_id", "compute_instance_id")
        nothing = dict.fromkeys((*names, "client_id"))
        more = {"source": "nvml", **more}
        return row(time, device, tgid=tgid, used_bytes=used, **{**nothing, **more})

    devices = [
        row(1, "GPU-0", total_bytes=100, used_bytes=60, reserved_bytes=5, is_unified=False),
        row(1, "pci:3", total_bytes=100, used_bytes=40, reserved_bytes=None, is_unified=None),
        row(5, "GPU-0", total_bytes=None, used_bytes=None, reserved_bytes=None, is_unified=False),
    ]
    processes = [
        held(1, "GPU-0", 101, 50, upid=1),
        held(1, "GPU-0", 77, None, comm="other"),
        held(1, "GPU-0", 78, None, source="descriptor"),
        held(1, "pci:3", 101, 30, source="drm", client_id=4),
        held(1, "pci:3", 102, 30, source="drm", client_id=4),
        held(3, "GPU-0", 101, 0, upid=1),
    ]
    put(path, "gpu_device", pa.Table.from_pylist(devices))
    put(path, "gpu_process", pa.Table.from_pylist(processes))
    recording = memtrace.load(path)
    told = recording.gpu_at(2)
    assert told.column("tgid") == [101, 101, 102, 77]
    assert told.column("used_bytes") == [50, 30, 30, None]
    assert told.column("comm") == ["x", None, None, "other"]
    late = write(tmp_path, [(0, 1, 10, "first"), (2, 1, 20, "rss_stat")], [(1, None)])
    at_peak = memtrace.load(late)
    assert at_peak.gpu_at("peak").column("used_bytes") == told.column("used_bytes")
    assert at_peak.gpu_devices_at("peak").column("used_bytes") == [60, 40]
    assert recording.gpu_at(4).column("tgid") == [101, 102, 77]
    books = recording.gpu_devices_at(2)
    columns = ("device", "used_bytes", "processes_bytes", "unattributed_bytes")
    assert list(zip(*map(books.column, columns))) == [
        ("GPU-0", 60, 50, 5),
        ("pci:3", 40, 30, 10),
    ]
    assert recording.gpu_devices_at(6).column("unattributed_bytes") == [None, 10]


def test_phases_pair_by_span_then_by_name_and_open_ones_have_no_end(tmp_path: Path) -> None:
    def event(time: int, kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"boot_ns": time * SECOND, "kind": kind, "name": name, "upid": 1, **more}

    marks = [
        event(1, "begin", "a", span=7, attributes='{"x":1,"y":1}'),
        event(2, "begin", "a", span=8),
        event(3, "end", "a", span=7, attributes='{"y":2}'),
        event(3, "end", "never begun"),
        event(3, "end", "a", span=7, upid=2),
        event(4, "begin", "b"),
        event(5, "begin", "b"),
        event(6, "end", "b"),
        event(7, "begin", "c", upid=None, tgid=55),
        event(8, "end", "c", upid=None, tgid=55),
        event(8, "instant", "i"),
    ]
    mem: list[Row] = [(0, 1, 10, "first"), (2, 1, 30, "rss_stat"), (3, 1, 20, "rss_stat")]
    path = write(tmp_path, mem, [(1, None)], marks)
    phases = memtrace.load(path).phases()
    seconds = [None if end is None else end // SECOND for end in phases.column("end_boot_ns")]
    assert list(zip(phases.column("name"), seconds)) == [
        ("a", 3),
        ("a", None),
        ("b", None),
        ("b", 6),
        ("c", 8),
    ]
    assert json.loads(phases.column("attributes")[0]) == {"x": 1, "y": 2}
    assert phases.column("rss_begin_bytes") == [10, 30, 20, 20, None]
    assert phases.column("rss_peak_bytes") == [30, 30, 20, 20, None]
    assert phases.column("rss_delta_bytes") == [10, None, None, 0, None]
    assert phases.column("tree_rss_peak_bytes")[4] == 20


def test_what_a_process_told_of_itself_is_newer_than_its_rows(tmp_path: Path) -> None:
    mib = 1 << 20

    def event(time: int, kind: str, name: str, upid: int, said: str) -> dict[str, Any]:
        event = {"boot_ns": time * SECOND, "kind": kind, "name": name, "upid": upid}
        return {**event, "attributes": said}

    marks = [
        event(2, "begin", "load", 1, f'{{"rss_bytes":{70 * mib},"rss_anon_bytes":{60 * mib}}}'),
        event(4, "end", "load", 1, f'{{"rss_bytes":{170 * mib},"rss_anon_bytes":{160 * mib}}}'),
        event(6, "begin", "section", 2, "{}"),
        event(7, "end", "section", 2, f'{{"begin_bytes":{mib},"end_bytes":{3 * mib}}}'),
        event(7, "begin", "before its first row", 3, f'{{"rss_bytes":{mib}}}'),
        event(7, "begin", "after its end", 4, f'{{"rss_bytes":{mib}}}'),
        event(7, "begin", "no number", 2, '{"rss_bytes":"many"}'),
    ]
    mem: list[Row] = [
        (1, 1, 60 * mib, "first"),
        (1, 2, 2 * mib, "first"),
        (1, 4, 2 * mib, "first"),
        (3, 1, 860 * mib, "rss_stat"),
        (8, 1, 172 * mib, "snapshot"),
    ]
    path = write(tmp_path, mem, [(1, None), (2, None), (3, None), (4, 5)], marks)
    recording = memtrace.load(path)
    phases = recording.phases()
    assert phases.column("rss_delta_bytes")[:2] == [100 * mib, 2 * mib]
    assert phases.column("rss_peak_bytes")[0] == 860 * mib
    assert phases.column("tree_rss_delta_bytes")[:2] == [100 * mib, 2 * mib]
    assert phases.column("rss_begin_bytes")[2:4] == [None, 0]
    assert recording.at(5).column("rss_bytes") == [170 * mib, 2 * mib]
    assert recording.at(5).column("rss_anon_bytes")[0] == 160 * mib
    assert recording.at(9).column("rss_bytes")[0] == 172 * mib


def test_without_marks_there_are_no_phases(tmp_path: Path) -> None:
    phases = memtrace.load(write(tmp_path, [(1, 1, 5, "first")], [(1, None)])).phases()
    assert len(phases) == 0
    assert "rss_peak_bytes" in phases.columns


def test_a_recording_that_was_never_closed_is_read_from_parts_and_spool(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 10, "first"), (3, 1, 30, "rss_stat")], [(1, None)], state="x")
    put(path, "mem", mem_table([(1, 1, 10, "first"), (3, 1, 30, "rss_stat")]), cut=3 * SECOND)
    # Of segment 1 the rows after the cut are in no part; of segment 2 none is.
    first: list[Row] = [(1, 1, 10, "first"), (3, 1, 30, "rss_stat"), (5, 1, 50, "rss_stat")]
    put_segment(path, "mem", mem_table(first), 1)
    second: list[Row] = [(12.0, 1, 70, "rss_stat"), (4.0, 1, 40, "peak")]
    put_segment(path, "mem", mem_table(second), 2)
    recording = memtrace.load(path)
    assert recording.mem.column("rss_bytes") == [10, 30, 40, 50, 70]
    assert recording.end_ns == 12 * SECOND
    assert any("never closed" in problem for problem in recording.problems)


def test_a_part_without_a_cut_has_all_rows_of_its_segment(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 10, "first")], [(1, None)])
    put_segment(path, "mem", mem_table([(1, 1, 10, "first")]), 1)
    assert len(memtrace.load(path).mem) == 1


def test_a_segment_that_was_cut_off_is_read_to_its_last_complete_batch(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 1, "first")], [(1, None)], state="recording")
    rows: list[Row] = [(n, 1, n, "rss_stat") for n in range(2, 8)]
    segment = put_segment(path, "mem", mem_table(rows), 2, rows=2)
    whole = segment.read_bytes()
    counts = set()
    for length in range(0, len(whole), 37):
        segment.write_bytes(whole[:length])
        recording = memtrace.load(path)
        counts.add(len(recording.mem))
    assert counts == {1, 3, 5, 7}


def test_a_damaged_file_is_a_problem_and_no_end(tmp_path: Path) -> None:
    shutil.copytree(TRAINING, tmp_path / "copy")
    (tmp_path / "copy/diag/part-00001.parquet").write_bytes(b"PAR1 not really")
    recording = memtrace.load(tmp_path / "copy")
    assert len(recording.diag) == 0
    assert any("diag/part-00001.parquet" in problem for problem in recording.problems)


def test_of_a_process_only_its_last_row_counts(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 5, "first")], [(1, None), (2, None), (1, 4)])
    recording = memtrace.load(path)
    assert recording.process.column("upid") == [2, 1]
    assert recording.at(5).column("upid") == []


def test_what_is_no_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a recording"):
        memtrace.load(tmp_path)
    (tmp_path / "run.json").write_text('{"schema_version": {"major": 3}}')
    with pytest.raises(ValueError, match="version 3"):
        memtrace.load(tmp_path)


def test_the_peak_is_a_moment_too() -> None:
    recording = memtrace.load(TRAINING)
    assert recording.at("peak").to_arrow().equals(recording.peak().processes.to_arrow())


def test_a_phase_knows_the_peak_of_what_descends_from_its_process() -> None:
    phases = memtrace.load(TRAINING).phases()
    peaks = dict(zip(phases.column("name"), phases.column("child_rss_peak_bytes")))
    own = dict(zip(phases.column("name"), phases.column("rss_peak_bytes")))
    tree = dict(zip(phases.column("name"), phases.column("tree_rss_peak_bytes")))
    assert peaks["load_model"] == 0
    for n in range(3):
        name = f"step_{n}_rollout"
        assert peaks[name] > 90 << 20
        assert peaks[name] <= tree[name] <= own[name] + peaks[name]
