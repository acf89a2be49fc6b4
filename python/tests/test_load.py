"""Reading a recording: a real one, cut-off ones, and small ones with known answers.

data/training was made by `memtrace record -- python3.11 -S train.py`.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import unittest.mock
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import pytest

import memtrace
from memtrace._recording.recording import Recording
from memtrace._recording.table import Table

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import assert_type

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
    with pytest.raises(AttributeError, match="there are: cached_file, cgroup_mem"):
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


def test_the_phases_of_the_program_have_their_memory() -> None:
    phases = memtrace.load(TRAINING).phases()
    marked = [kind == "phase" for kind in phases.column("kind")]
    names = [name for name, is_marked in zip(phases.column("name"), marked) if is_marked]
    steps = [f"step_{n}_{stage}" for n in range(3) for stage in ("rollout", "update")]
    assert names == ["load_model", *steps]
    deltas = dict(zip(phases.column("name"), phases.column("rss_delta_bytes")))
    # Each rollout keeps 10 MiB, an update gives all back.
    for n in range(3):
        assert deltas[f"step_{n}_rollout"] == pytest.approx(10 << 20, abs=256 << 10)
        assert deltas[f"step_{n}_update"] == 0
    # What `peak` measured inside of the process, and what the recorder saw from outside.
    inside, outside = phases.column("exact_peak_bytes")[0], phases.column("rss_peak_bytes")[0]
    assert inside == pytest.approx(outside, abs=768 << 10)
    assert set(phases.column("process_name")) == {"python3.11 -S train.py"}
    assert set(phases.column("role")) == {"main"}


def test_a_moment_has_many_forms() -> None:
    recording = memtrace.load(TRAINING)
    start = datetime.datetime(2026, 11, 23, 0, 26, 46, 600929, tzinfo=datetime.timezone.utc)
    moments: list[Any] = [
        3,
        3.0,
        "+3s",
        "3s",
        "+0m3s",
        "3000ms",
        datetime.timedelta(seconds=3),
        start + datetime.timedelta(seconds=3),
        (start + datetime.timedelta(seconds=3)).replace(tzinfo=None),
        "2026-11-23T00:26:49.600Z",
        "2026-11-23T01:26:49.600+01:00",
    ]
    for moment in moments:
        assert recording.at(moment).column("tgid") == [29608, 29669, 29670], moment
    for moment in ("+5 parsecs", "noon", "", "+1h", -30):
        with pytest.raises(ValueError):
            recording.at(moment)
    for moment in ("+3x", "noon", ""):
        with pytest.raises(ValueError, match="is not a time: use 'peak', an offset"):
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


def test_the_plot_stacks_roles_or_processes_and_names_phases() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    figure: Any = memtrace.load(TRAINING).plot(top=2, by="process")
    memory, waterfall = figure.axes
    labels = [text.get_text() for text in memory.get_legend().get_texts()]
    assert labels[0] == "29608 python3.11 -S train.py"
    assert labels[2] == "5 others"
    texts = [text.get_text() for text in memory.texts]
    assert "step_2_rollout" in texts
    assert any(text.startswith("peak 243") for text in texts)
    names = [text.get_text() for text in waterfall.get_yticklabels()]
    assert any(name.startswith("step_2_rollout, ") for name in names)
    assert len(names) == len(waterfall.texts)
    matplotlib.pyplot.close(figure)
    figure = memtrace.load(TRAINING).plot()
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[0] == "main" and labels[2:] == ["kernel memory, and others"]
    matplotlib.pyplot.close(figure)
    with pytest.raises(ValueError, match="by is"):
        memtrace.load(TRAINING).plot(by="wish")


def test_the_plot_has_the_limit_and_the_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    recording = memtrace.load(TRAINING)
    root = recording.run["root_tgid"]
    rows = zip(*map(recording.process.column, ("tgid", "cgroup")))
    group = next(group for tgid, group in rows if tgid == root)
    limits: dict[str, list[Any]] = {
        "a": [group, None],
        "b": [f"{group}/below", 1 << 20],
        "c": ["/elsewhere", 1 << 20],
    }

    # Only the last kill is of a recorded process.
    kills = [SECOND // 100 * number for number in range(25)]

    def drawn(limit: int | None) -> Any:
        limits["a"] = [group, limit]
        groups = [group for group, _ in limits.values()]
        bytes_of = [limit for _, limit in limits.values()]
        made = {
            "cgroup_mem": Table.of(
                "cgroup_mem", {"cgroup": ("string", groups), "limit_bytes": ("int64", bytes_of)}
            ),
            "oom": Table.of(
                "oom",
                {
                    "boot_ns": ("int64", [recording.start_ns + time for time in kills]),
                    "victim_upid": ("int64", [*[None] * 24, 7]),
                    "victim_comm": ("string", [*["other"] * 24, "victim"]),
                },
            ),
        }
        known = Recording._table_or_none
        monkeypatch.setattr(
            Recording, "_table_or_none", lambda self, name: made.get(name) or known(self, name)
        )
        figure: Any = recording.plot()
        monkeypatch.undo()
        axes = figure.axes[0]
        texts = [text.get_text() for text in axes.texts]
        lines = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
        matplotlib.pyplot.close(figure)
        named = [text for text in texts if text.startswith("OOM kill: ")]
        assert named == ["OOM kill: victim", *["OOM kill: other (not recorded)"] * 19]
        assert "20 of 25 OOM kills are named in the picture" in recording.problems
        segments = next(
            lines.get_segments() for lines in axes.collections if lines.get_label() == "_kills"
        )
        assert [segment[0][0] for segment in segments] == [time / SECOND for time in kills]
        return texts, lines

    texts, lines = drawn(300 << 20)
    assert "limit 300.0 MiB" in texts and lines == [300]
    texts, lines = drawn(64 << 30)
    assert "limit 65,536.0 MiB (above)" in texts and lines == []
    texts, lines = drawn(None)
    assert not any(text.startswith("limit") for text in texts) and lines == []


if TYPE_CHECKING:

    def _what_a_type_checker_knows(recording: Recording, axes: Axes) -> None:
        assert_type(recording.plot(), Figure)
        assert_type(recording.plot(ax=axes), Axes)
        assert_type(recording.mem.to_polars(), polars.DataFrame)


def test_all_of_a_plot_lies_within_its_figure(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    figure: Any = memtrace.load(TRAINING).plot()
    figure.canvas.draw()
    page = figure.bbox
    for axes in figure.axes:
        legend = axes.get_legend()
        for part in [axes.get_tightbbox(), *([legend.get_window_extent()] if legend else [])]:
            assert part.x0 >= 0 and part.y0 >= 0, part
            assert part.x1 <= page.x1 and part.y1 <= page.y1, part
    matplotlib.pyplot.close(figure)
    path = tmp_path / "peak.png"
    assert memtrace.load(TRAINING).plot(path) is None
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_plot_draws_what_is_used_on_gpus(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    path = write(tmp_path / "r", [(1, 1, 100, "first")], [(1, 9)])
    gib = 1 << 30
    device = {"device": "GPU-a", "device_index": 0, "name": "H100 $x$", "parent_device": None}
    part = {**device, "device": "MIG-a", "parent_device": "GPU-a"}
    used = [(device, 2, 3 * gib), (part, 3, gib), (device, 5, None), (device, 6, 5 * gib)]
    rows = [
        {**which, "boot_ns": time * SECOND, "used_bytes": held, "total_bytes": 80 * gib}
        for which, time, held in used
    ]
    put(path, "gpu_device", pa.Table.from_pylist(rows))
    figure: Any = memtrace.load(path).plot()
    (memory, gpus) = figure.axes
    (line, total) = gpus.get_lines()
    assert line.get_xdata().tolist() == [2, 5, 6, 10]
    values = line.get_ydata().tolist()
    assert values[0] == 3 and values[1] != values[1] and values[2:] == [5, 5]
    assert list(total.get_ydata()) == [80, 80]
    assert [text.get_text() for text in gpus.get_legend().get_texts()] == [r"GPU 0 H100 \$x\$"]
    matplotlib.pyplot.close(memory.figure)


def test_gpus_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    path = write(tmp_path / "r", [(1, 1, 100, "first")], [(1, 9)])
    which = [("b", 10, "H100"), ("z", None, "A"), ("c", 2, "H100"), ("a", 9, "B")]
    names = ("device", "device_index", "name")
    rows = [
        {**dict(zip(names, each)), "parent_device": None, "boot_ns": SECOND, "used_bytes": 5}
        for each in which
    ]
    put(path, "gpu_device", pa.Table.from_pylist([{**row, "total_bytes": 9} for row in rows]))
    figure: Any = memtrace.load(path).plot()
    labels = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert labels == ["GPU 2 H100", "GPU 9 B", "GPU 10 H100", "z A"]
    matplotlib.pyplot.close(figure)


def test_no_layer_of_a_plot_loses_a_spike_nor_a_gap_between_two_ticks(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    mib = 1 << 20
    # 1 holds most at 1 s. The others have 1 ms of their own, while a tick has 16 ms.
    mem: list[Row] = [(0, upid, 50 * mib, "first") for upid in range(1, 5)]
    mem += [(1, 1, 600 * mib, "snapshot"), (2, 1, 50 * mib, "snapshot")]
    for upid, begin, held in ((2, 5.003, 400), (3, 6.003, 1), (4, 7.003, 300), (2, 8.0001, 200)):
        mem.append((begin, upid, held * mib, "snapshot"))
        mem.append((begin + 0.001, upid, 50 * mib, "snapshot"))
    path = write(tmp_path / "r", mem, [(upid, 9.9) for upid in range(1, 5)])
    axes = matplotlib.pyplot.subplots()[1]
    with unittest.mock.patch.object(axes, "stackplot", wraps=axes.stackplot) as stackplot:
        memtrace.load(path).plot(ax=axes, by="process", top=2)
    seconds, heights = stackplot.call_args.args
    assert len(seconds) < 700, "all that is drawn is not all that there is"
    layers = dict(zip(stackplot.call_args.kwargs["labels"], heights))

    def near(label: str, second: float) -> list[int]:
        return [round(y) for x, y in zip(seconds, layers[label]) if abs(x - second) < 0.02]

    assert list(layers) == ["101 x", "102 x", "2 others"]
    assert max(near("101 x", 1.01)) == 600
    assert max(near("102 x", 5)) == 400
    assert max(near("102 x", 8)) == 200
    assert min(near("2 others", 6)) == 51
    assert max(near("2 others", 7)) == 350
    matplotlib.pyplot.close(axes.figure)


def test_names_in_a_plot_are_written_as_the_report_writes_them() -> None:
    from memtrace._recording.pictures.units import plain

    assert plain("a\nb\r\t\x1b[31m\x9b") == r"a\nb\r\t\x1b[31m\u{9b}"
    assert plain("\u202ertl\u2066 \U000e0041") == r"\u{202e}rtl\u{2066} \u{e0041}"
    assert plain("训练 ünï back\\slash") == "训练 ünï back\\slash"
    assert plain("\n" * 4_096) == r"\n" * 23 + r"\…"
    source = Path(__file__).parents[2] / "crates/report/src/visible.rs"
    rust = source.read_text().partition("fn is_hidden")[2].partition("\n}")[0]
    spans = re.findall(r"'\\u\{(\w+)\}'(?:\.\.='\\u\{(\w+)\}')?", rust)
    assert len(spans) > 10
    hidden = {*range(0x20), *range(0x7F, 0xA0)}
    for first, last in spans:
        hidden.update(range(int(first, 16), int(last or first, 16) + 1))
    surrogates = range(0xD800, 0xE000)
    characters = [code for code in range(0x110000) if code not in surrogates]
    differ = {code for code in characters if plain(chr(code)).startswith("\\") != (code in hidden)}
    # A backslash stays as it is; a dollar has one for matplotlib.
    assert differ == {ord("\\"), ord("$")}


def test_a_plot_refuses_what_is_no_path() -> None:
    for wrong in (8, True, ["peak.png"]):
        with pytest.raises(TypeError, match="is not the path of a file; the number of layers is"):
            memtrace.load(TRAINING).plot(wrong)  # type: ignore[call-overload]


def test_a_plot_names_the_longest_of_phases_that_begin_together(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    phases: list[dict[str, Any]] = []
    for number in range(1_000):
        begin = 1 + number // 2 / 100
        end = begin + (4 if number == 1 else 0.005)
        times = {"begin_boot_ns": int(begin * SECOND), "end_boot_ns": int(end * SECOND)}
        phases.append({"name": f"phase {number}", "kind": "phase", **times})
    phases.append({"name": "now", "kind": "instant", "begin_boot_ns": 0, "end_boot_ns": 9 * SECOND})
    path = write(tmp_path / "r", [(1, 1, 100, "first")], [(1, 9)])
    put_findings(path, "phase", phases)
    axes = matplotlib.pyplot.subplots()[1]
    assert memtrace.load(path).plot(ax=axes) is axes
    names = [text.get_text() for text in axes.texts]
    assert "phase 1" in names
    assert "phase 0" not in names and "now" not in names
    assert len(names) < 80
    matplotlib.pyplot.close(axes.figure)


def test_a_plot_without_saved_findings_has_no_phases_and_a_problem_says_so(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    recording = memtrace.load(write(tmp_path, [(1, 1, 100, "first")], [(1, 9)]))
    figure = recording.plot()
    assert len(figure.axes) == 1
    assert any("--save-findings" in problem for problem in recording.problems)
    matplotlib.pyplot.close(figure)
    with pytest.raises(memtrace.FindingsError):
        recording.plot(by="role")


# Recordings with known answers. A row of mem: seconds since the start, upid, RSS, source.
Row = tuple[float, int, Optional[int], str]


def sealed(run: dict[str, Any]) -> str:
    """A run.json with its checksum, of a memtrace that gave recordings no id."""
    text = json.dumps(run)[:-1] + ', "checksum": "crc32:00000000"}'
    return text.replace("crc32:00000000", f"crc32:{zlib.crc32(text.encode()):08x}")


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
    (directory / "run.json").write_text(sealed(run))
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


def put(
    directory: Path,
    table: str,
    frame: Any,
    number: int = 1,
    cut: int | None = None,
    replaces_from: int | None = None,
) -> Path:
    (directory / table).mkdir(exist_ok=True)
    texts = {"memtrace.cut_boot_ns": cut, "memtrace.replaces_from": replaces_from}
    stated = {key: str(value) for key, value in texts.items() if value is not None}
    if stated:
        frame = frame.replace_schema_metadata(stated)
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


def test_what_a_process_measured_of_itself_counts_from_its_first_row_to_its_end(
    tmp_path: Path,
) -> None:
    mib = 1 << 20
    mem: list[Row] = [
        (1, 1, 60 * mib, "first"),
        (1, 2, 2 * mib, "first"),
        (1, 4, 2 * mib, "first"),
        (2, 1, 70 * mib, "self"),
        (3, 1, 860 * mib, "rss_stat"),
        (4, 1, 170 * mib, "self"),
        (7, 3, mib, "self"),
        (7, 4, mib, "self"),
        (8, 1, 172 * mib, "snapshot"),
    ]
    recording = memtrace.load(write(tmp_path, mem, [(1, None), (2, None), (3, None), (4, 5)]))
    held = {time: recording.at(time).column("rss_bytes")[0] for time in (2, 3, 5, 9)}
    assert held == {2: 70 * mib, 3: 860 * mib, 5: 170 * mib, 9: 172 * mib}
    assert recording.at(7).column("rss_bytes") == [170 * mib, 2 * mib]


def test_what_a_process_measured_of_itself_is_no_more_than_the_kernel_knows(tmp_path: Path) -> None:
    mem: list[Row] = [(1, 1, 60, "first"), (2, 1, 105, "self"), (3, 1, 900, "self")]
    path = write(tmp_path, mem, [(1, None)])
    process = {"upid": 1, "tgid": 101, "comm": "x", "exit_boot_ns": None, "peak_rss_bytes": 100}
    known = {**process, "peak_rss_source": "kernel_hiwater"}
    put(path, "process", pa.Table.from_pylist([known]))
    assert memtrace.load(path).at(4).column("rss_bytes") == [100]
    put(path, "process", pa.Table.from_pylist([{**process, "peak_rss_source": "poll"}]))
    assert memtrace.load(path).at(4).column("rss_bytes") == [900]


def test_what_a_process_measured_keeps_the_kinds_that_still_add_up(tmp_path: Path) -> None:
    mib = 1 << 20
    # Source and, in MiB: RSS, anonymous, file, shmem, swap; then what it held from there on.
    cases: list[tuple[str, list[int | None], list[int | None]]] = [
        ("self", [50, 40, None, None, None], []),
        ("first", [110, 100, 8, 2, 1], [110, 100, 8, 2, 1]),
        ("self", [30, 20, None, None, None], [30, 20, 8, 2, 1]),
        ("self", [31, None, None, None, None], [31, 20, 8, 2, 1]),
        ("self", [40, None, None, None, None], [40, None, None, None, 1]),
        ("self", [40, None, None, None, None], [40, None, None, None, 1]),
        ("self", [30, 20, None, None, None], [30, 20, None, None, 1]),
        ("snapshot", [30, 20, 8, 2, 3], [30, 20, 8, 2, 3]),
        ("self", [30, 29, None, None, None], [30, 29, None, None, 3]),
        ("snapshot", [120, 120, 0, 0, 0], [120, 120, 0, 0, 0]),
        ("self", [130, 130, None, None, None], [121, 121, 0, 0, 0]),
        ("self", [900, 900, None, None, None], [121, 121, 0, 0, 0]),
        ("snapshot", [60, 50, None, 5, 0], [60, 50, None, 5, 0]),
        ("self", [60, None, None, None, None], [60, 50, None, 5, 0]),
        ("self", [60, 55, None, None, None], [60, 55, None, None, 0]),
    ]
    names = [f"{kind}_bytes" for kind in ("rss", "rss_anon", "rss_file", "rss_shmem", "swap")]
    path = write(tmp_path, [], [], seconds=len(cases))

    def in_bytes(row: list[int | None]) -> tuple[int | None, ...]:
        return tuple(None if amount is None else amount * mib for amount in row)

    amounts = zip(*(in_bytes(row) for _, row, _ in cases))
    columns = {name: pa.array(column, "int64") for name, column in zip(names, amounts)}
    times = pa.array([SECOND * n for n in range(len(cases))], "int64")
    upids = pa.array([1] * len(cases), "int64")
    sources = [source for source, *_ in cases]
    put(path, "mem", pa.table({"boot_ns": times, "upid": upids, **columns, "source": sources}))
    who = {"upid": 1, "tgid": 101, "comm": "x", "cmdline": "x", "role": "main", "framework": "y"}
    who |= {"rank": "0", "peak_rss_bytes": 121 * mib, "peak_rss_source": "kernel_hiwater"}
    whole = pa.Table.from_pylist([who])
    put(path, "process", whole.append_column("exit_boot_ns", pa.array([None], "int64")))
    recording = memtrace.load(path)
    duckdb = pytest.importorskip("duckdb")
    duckdb.execute(memtrace.duckdb_macros())
    for second, (_, _, held) in enumerate(cases):
        expected = [in_bytes(held)] * bool(held)
        assert list(zip(*map(recording.at(second).column, names))) == expected, second
        query = f"SELECT {', '.join(names)} FROM held_at('{path}', {second * SECOND})"
        assert duckdb.sql(query).fetchall() == expected, second


def put_findings(path: Path, table: str, rows: list[dict[str, Any]]) -> None:
    """Saves findings as the report of this recording would."""
    frame = pa.Table.from_pylist(rows)
    put(path, table, frame.replace_schema_metadata({"memtrace.findings_of": state_of(path)}))


def state_of(path: Path) -> str:
    """As docs/tables.md has it."""
    text = (path / "run.json").read_bytes()
    parts = sorted(path.glob("*/part-*.parquet"))
    for part in parts:
        if part.parent.name not in ("phase", "role_mem", "held"):
            text += f"\n{part.parent.name}/{part.name} {part.stat().st_size}".encode()
    return f"{zlib.crc32(text):08x}"


def test_findings_are_read_as_they_were_saved(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 5, "first"), (4, 1, 9, "rss_stat")], [(1, None)])
    put_findings(path, "phase", [{"name": "load", "rss_delta_bytes": 4}])
    held = {"framework": "vLLM", "role": "worker", "swap_bytes": 0, "gpu_bytes": None}
    rows = [
        {"boot_ns": 1 * SECOND, "name": "vLLM worker", "process_count": 1, "rss_bytes": 5},
        {"boot_ns": 2 * SECOND, "name": "other", "process_count": 2, "rss_bytes": 7},
        {"boot_ns": 4 * SECOND, "name": "vLLM worker", "process_count": 1, "rss_bytes": 9},
        {"boot_ns": 5 * SECOND, "name": "other", "process_count": 0, "rss_bytes": 0},
    ]
    put_findings(
        path, "role_mem", [{**row, "held_bytes": row["rss_bytes"], **held} for row in rows]
    )
    recording = memtrace.load(path)
    assert recording.phases().column("rss_delta_bytes") == [4]
    assert recording.phase is recording.phases()
    seen = {
        time: list(zip(*map(recording.at(time, by="role").column, ("name", "rss_bytes"))))
        for time in (0.5, 1, 3, 4.5, 9)
    }
    assert seen == {
        0.5: [],
        1: [("vLLM worker", 5)],
        3: [("other", 7), ("vLLM worker", 5)],
        4.5: [("vLLM worker", 9), ("other", 7)],
        9: [("vLLM worker", 9)],
    }
    with pytest.raises(ValueError, match="by is"):
        recording.at(1, by="pid")


def test_findings_that_are_absent_or_of_another_recording_name_the_command(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 5, "first")], [(1, None)])
    command = f"memtrace report --save-findings {path}"
    with pytest.raises(memtrace.FindingsError, match="not saved") as absent:
        memtrace.load(path).phases()
    assert command in str(absent.value)
    put_findings(path, "phase", [{"name": "load"}])
    assert len(memtrace.load(path).phases()) == 1
    put(path, "mem", mem_table([(1, 1, 5, "first")] * 9), number=2)
    with pytest.raises(memtrace.FindingsError, match="another recording") as stale:
        memtrace.load(path).phases()
    assert command in str(stale.value)


def test_without_findings_of_use_every_table_that_is_named_can_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 5, "first")], [(1, None)])
    recording = memtrace.load(path)
    assert not hasattr(recording, "phase")
    assert recording.tables == ["mem", "process"]
    assert recording.problems == []
    put_findings(path, "phase", [{"name": "load"}])
    assert recording.tables == ["mem", "phase", "process"]
    put(path, "mem", mem_table([(1, 1, 5, "first")] * 9), number=2)
    stale = memtrace.load(path)
    for _ in range(2):
        assert [len(stale[name]) for name in stale.tables] == [10, 1]
    (problem,) = stale.problems
    assert "another recording" in problem
    assert f"memtrace report --save-findings {path}" in problem
    assert not hasattr(stale, "phase")


def test_damaged_findings_are_an_error_that_names_the_command(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    path = write(tmp_path, [(1, 1, 5, "first")], [(1, 9)])
    put_findings(path, "phase", [{"name": "load"}])
    part = path / "phase/part-00001.parquet"
    whole = part.read_bytes()
    for damaged in (whole[: len(whole) // 2], b""):
        part.write_bytes(damaged)
        recording = memtrace.load(path)
        with pytest.raises(memtrace.FindingsError, match="parquet can't be read") as told:
            recording.phases()
        assert f"memtrace report --save-findings {path}" in str(told.value)
        assert recording.tables == ["mem", "process"]
        matplotlib.pyplot.close(recording.plot())
        assert any("phases are not drawn" in problem for problem in recording.problems)


def test_every_frame_has_name_role_and_rank(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 5, "first"), (1, 2, 4, "first")], [(1, None), (2, None)])
    worker = {"comm": "python", "cmdline": "-c spawn", "framework": "vLLM", "role": "worker"}
    workers = [
        {"upid": upid, "tgid": upid, "rank": f"TP{upid - 1}", "exit_boot_ns": None, **worker}
        for upid in (1, 2)
    ]
    put(path, "process", pa.Table.from_pylist(workers))
    recording = memtrace.load(path)
    names = ["vLLM worker TP0", "vLLM worker TP1"]
    for frame in (recording.at(2), recording.peak().processes):
        assert frame.column("name") == names
        assert frame.column("role") == ["worker"] * 2
        assert frame.column("rank") == ["TP0", "TP1"]
    assert set(recording.resample("1s").column("name")) == set(names)
    assert recording.names() == {1: "1 vLLM worker TP0", 2: "2 vLLM worker TP1"}


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


def test_parts_whose_rows_are_in_a_later_one_too_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, [(1, 1, 10, "first")], [(1, None)], state="x")
    rows: list[Row] = [(second, 1, second, "rss_stat") for second in range(1, 6)]
    put(path, "mem", mem_table(rows[:1]), 1)
    for number in (2, 3):
        put(path, "mem", mem_table(rows[number - 1 : number]), number)
    put(path, "mem", mem_table(rows[1:4]), 4, replaces_from=2)
    assert memtrace.load(path).mem.column("rss_bytes") == [1, 2, 3, 4]
    # Also where there is a newer part that replaces nothing.
    put(path, "mem", mem_table(rows[4:]), 5)
    assert memtrace.load(path).mem.column("rss_bytes") == [1, 2, 3, 4, 5]


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


def seal(stream: bytes) -> bytes:
    """An Arrow IPC stream with the checksums that memtrace gives each of its messages."""
    made, at = b"", 0
    while stream[at + 4 : at + 8] != bytes(4):
        length = 8 + int.from_bytes(stream[at + 4 : at + 8], "little")
        body = pa.ipc.read_message(pa.py_buffer(stream[at:])).body or b""
        head = stream[at : at + 4] + (length + 8).to_bytes(4, "little")
        head += stream[at + 8 : at + length] + b"mtcrc32\n" + zlib.crc32(body).to_bytes(4, "little")
        made += head + zlib.crc32(head).to_bytes(4, "little") + bytes(body)
        at += length + len(body)
    return made + stream[at:]


def test_a_flipped_bit_in_the_spool_is_reported_and_what_it_is_in_left_out(tmp_path: Path) -> None:
    rows: list[Row] = [(n, 1, n, "rss_stat") for n in range(6)]
    path = write(tmp_path, [(9, 1, 9, "first")], [(1, None)], state="recording")
    segment = put_segment(path, "mem", mem_table(rows), 2, rows=2)
    whole = seal(segment.read_bytes())
    segment.write_bytes(whole)
    before = memtrace.load(path)
    values = set(before.mem.column("rss_bytes"))
    assert len(values) == 7
    for at in range(0, len(whole), 23):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        segment.write_bytes(flipped)
        recording = memtrace.load(path)
        read = set(recording.mem.column("rss_bytes"))
        assert read < values or read == values, at
        is_told = recording.problems != before.problems
        # The mark of a checksum: without one it is a segment of the first versions of memtrace.
        assert is_told or read == values, at


def test_a_damaged_file_is_a_problem_and_no_end(tmp_path: Path) -> None:
    shutil.copytree(TRAINING, tmp_path / "copy")
    (tmp_path / "copy/diag/part-00001.parquet").write_bytes(b"PAR1 not really")
    recording = memtrace.load(tmp_path / "copy")
    assert len(recording.diag) == 0
    told = [problem for problem in recording.problems if "diag/part-00001.parquet" in problem]
    assert len(told) == 1


def test_problems_are_complete_before_anything_is_read(tmp_path: Path) -> None:
    shutil.copytree(TRAINING, tmp_path / "copy")
    path = tmp_path / "copy/title/part-00001.parquet"
    whole = path.read_bytes()
    # Zeros in the middle of the data, which the footer knows nothing of.
    path.write_bytes(whole[:8] + bytes(64) + whole[72:])
    recording = memtrace.load(tmp_path / "copy")
    problems = list(recording.problems)
    assert any("title/part-00001.parquet can't be read" in problem for problem in problems)
    _ = recording.title, recording.mem
    assert recording.problems == problems


def test_a_flipped_bit_is_told_by_the_table_it_is_in(tmp_path: Path) -> None:
    shutil.copytree(TRAINING, tmp_path / "copy")
    path = tmp_path / "copy/mem/part-00001.parquet"
    whole = path.read_bytes()
    for at in range(20, len(whole), len(whole) // 40):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        path.write_bytes(flipped)
        problems = memtrace.load(tmp_path / "copy").problems
        assert any("mem/part-00001.parquet" in problem for problem in problems), at
    path.write_bytes(whole)
    assert memtrace.load(tmp_path / "copy").problems == []


def test_what_is_no_file_is_passed_over_for_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TRAINING, tmp_path / "memtrace-good")
    for name, text in (("a", "[" * 100_000), ("b", '{"clocks":[{"wall_ns":1e999}]}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/run.json")
    assert memtrace.load().path.name == "memtrace-good"


def test_the_newest_recording_is_the_one_that_began_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="memtrace record -- COMMAND"):
        memtrace.load()
    for name, wall_ns in (("zz", 5), ("memtrace-a", 7), ("other", 6)):
        shutil.copytree(TRAINING, tmp_path / name)
        run = json.loads((tmp_path / name / "run.json").read_text())
        run["clocks"][0]["wall_ns"] = wall_ns
        (tmp_path / name / "run.json").write_text(json.dumps(run))
    (tmp_path / "notes").mkdir()
    assert memtrace.load().path.name == "memtrace-a"


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
