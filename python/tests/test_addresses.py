"""Recordings and runs at addresses: what is read of them, and what is said where they can't be."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_s3 import S3

import memtrace

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
if not hasattr(pytest.importorskip("pyarrow.fs"), "S3FileSystem"):
    pytest.skip("this pyarrow was built without S3", allow_module_level=True)

TRAINING = Path(__file__).parent / "data" / "training"
RUN = "memory/run=4711"
FIRST = f"{RUN}/host=node1/rec=20261123T002646Z"
SECOND = f"{RUN}/host=node2/rec=20261123T002646Z"
SECOND_NS = 1_000_000_000


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A bucket, as the environment names it."""
    served = S3()
    with served.serving() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield served


def everything(table: Any) -> Any:
    return table.to_arrow().to_pydict()


def test_a_recording_at_an_address_reads_as_in_its_directory(s3: S3) -> None:
    s3.put_folder(TRAINING, FIRST)
    here, there = memtrace.load(TRAINING), memtrace.load(f"s3://bucket/{FIRST}")
    assert there.run == here.run
    assert there.tables == here.tables
    assert there.path == f"s3://bucket/{FIRST}"
    assert repr(there).startswith("<Recording rec=20261123T002646Z: ")
    for name in here.tables:
        assert everything(there[name]) == everything(here[name]), name
    assert there.peak()[:3] == here.peak()[:3]
    assert everything(there.resample("1s")) == everything(here.resample("1s"))
    assert everything(there.phases()) == everything(here.phases())
    assert there.problems == []
    by_file = memtrace.load(f"file://{TRAINING}")
    assert by_file.path == TRAINING
    assert everything(by_file.mem) == everything(here.mem)


def test_what_was_held_at_a_time_is_the_same_from_a_few_rows(s3: S3) -> None:
    s3.put_folder(TRAINING, FIRST)
    here = memtrace.load(TRAINING)
    seconds = (here.end_ns - here.start_ns) / SECOND_NS
    for number in range(20):
        there = memtrace.load(f"s3://bucket/{FIRST}")
        moment = seconds * number / 20
        assert everything(there.at(moment)) == everything(here.at(moment)), moment


def long_recording(directory: Path, groups: int, rows: int) -> Path:
    """Of three processes, one of which has a row each 10 s; a row group has 100 s."""
    (directory / "mem").mkdir(parents=True)
    (directory / "process").mkdir()
    clocks = [{"boot_ns": at * SECOND_NS, "wall_ns": at * SECOND_NS} for at in (0, groups * 100)]
    run = {"schema_version": {"major": 2, "minor": 3}, "state": "closed", "clocks": clocks}
    (directory / "run.json").write_text(json.dumps(run))
    names = ["boot_ns", "upid", "source", "rss_bytes", "rss_anon_bytes"]
    with pq.ParquetWriter(directory / "mem/part-00001.parquet", frame(names, []).schema) as writer:
        for group in range(groups):
            step = 100 * SECOND_NS // rows
            read = []
            for row in range(rows):
                at = group * 100 * SECOND_NS + row * step
                held = (group * rows + row) * 7919 % 100_003 * 4096
                read.append((at, 1 + row % 2, "snapshot", held, held))
                if row % (rows // 10) == 0:
                    read.append((at, 3, "keyframe", 12288, 4096))
            writer.write_table(frame(names, read))
    process = {"upid": [1, 2, 3], "tgid": [101, 102, 103], "start_boot_ns": [0, 0, 0]}
    process["exit_boot_ns"] = [None, groups * 100 * SECOND_NS - 1, None]  # type: ignore[list-item]
    pq.write_table(pa.table(process), directory / "process/part-00001.parquet")
    return directory


def frame(names: list[str], rows: list[tuple[Any, ...]]) -> Any:
    types = [pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.int64()]
    columns = list(zip(*rows)) or [()] * len(names)
    return pa.table({name: pa.array(c, t) for name, c, t in zip(names, columns, types)})


def test_only_the_columns_and_the_row_groups_that_are_asked_for_are_fetched(
    s3: S3, tmp_path: Path
) -> None:
    directory = long_recording(tmp_path / "r", groups=10, rows=20_000)
    whole = s3.put_folder(directory, FIRST)
    here = memtrace.load(directory)

    def share(read: Any) -> tuple[Any, float]:
        there = memtrace.load(f"s3://bucket/{FIRST}")
        before = s3.sent_bytes
        table = read(there)
        return everything(table), (s3.sent_bytes - before) / whole

    column, fetched = share(lambda there: there.read("mem", ["rss_anon_bytes"]))
    assert column == {"rss_anon_bytes": here.mem.column("rss_anon_bytes")}
    assert 0.1 < fetched < 0.75
    stretch, fetched = share(lambda there: there.read("mem", since="+310s", until="+320s"))
    assert stretch == everything(here.read("mem", since=310, until=320))
    times = stretch["boot_ns"]
    assert (min(times), max(times)) == (310 * SECOND_NS, 320 * SECOND_NS)
    assert 0.05 < fetched < 0.2
    at, fetched = share(lambda there: there.at("+555s"))
    assert at == everything(here.at("+555s"))
    assert at["upid"] and fetched < 0.3
    none, fetched = share(lambda there: there.read("mem", ["boot_ns"], since="+2h"))
    assert none == {"boot_ns": []} and fetched < 0.05


def test_what_is_read_is_held_against_its_checksums(s3: S3) -> None:
    s3.put_folder(TRAINING, FIRST)
    key = f"{FIRST}/mem/part-00001.parquet"
    metadata = pq.ParquetFile(TRAINING / "mem/part-00001.parquet").metadata
    chunk = metadata.row_group(0).column(metadata.schema.names.index("rss_bytes"))
    flipped = bytearray(s3.objects[key])
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    flipped[start + chunk.total_compressed_size - 1] ^= 1
    s3.objects[key] = bytes(flipped)
    there = memtrace.load(f"s3://bucket/{FIRST}")
    there.read("mem", ["rss_anon_bytes"])
    assert there.problems == [], "of a column that was not read nothing is known"
    there.read("mem", ["boot_ns", "rss_bytes"])
    assert (
        "rss_bytes does not match its checksum" in there.problems[0]
        or "can't be read" in (there.problems[0])
    )


def test_a_part_that_was_replaced_meanwhile_is_looked_for_again(s3: S3) -> None:
    s3.put_folder(TRAINING, FIRST)
    there = memtrace.load(f"s3://bucket/{FIRST}")
    assert "mem" in there.tables
    old, new = (f"{FIRST}/mem/part-0000{number}.parquet" for number in (1, 2))
    s3.objects[new] = s3.objects.pop(old)
    assert everything(there.mem) == everything(memtrace.load(TRAINING).mem)
    assert there.problems == []


def test_a_run_is_its_recordings_and_their_tables_as_one(s3: S3, tmp_path: Path) -> None:
    for place in (FIRST, SECOND):
        s3.put_folder(TRAINING, place)
        shutil.copytree(TRAINING, tmp_path / place)
    here = memtrace.load(TRAINING)
    runs: list[Any] = [memtrace.load(f"s3://bucket/{RUN}"), memtrace.load(tmp_path / RUN)]
    for run in runs:
        assert run.hosts == ["node1", "node2"]
        assert list(run) == [
            ("node1", "20261123T002646Z"),
            ("node2", "20261123T002646Z"),
        ]
        assert "node1" in run and "node3" not in run
        assert repr(run) == "<Run run=4711: 2 recordings of node1, node2>"
        assert everything(run["node2"].process) == everything(here.process)
        table = run.read("role_mem", ["boot_ns", "name", "rss_bytes"])
        assert table.columns == ["host", "rec", "boot_ns", "name", "rss_bytes"]
        assert table.column("host") == ["node1"] * (len(table) // 2) + ["node2"] * (len(table) // 2)
        assert table.column("rss_bytes") == here.role_mem.column("rss_bytes") * 2
        assert run.problems == {}
        with pytest.raises(KeyError, match="hosts node1, node2"):
            run["node3"]
        with pytest.raises(KeyError, match="has a table"):
            run.read("no_such_table")
        with pytest.raises(KeyError, match="no column 'x' in the table 'mem'"):
            run.read("mem", ["boot_ns", "x"])
    one: Any = memtrace.load(f"s3://bucket/{RUN}/host=node1")
    assert list(one) == [("node1", "20261123T002646Z")]


def test_a_host_without_findings_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    for place in (FIRST, SECOND):
        shutil.copytree(TRAINING, tmp_path / place)
    shutil.rmtree(tmp_path / SECOND / "role_mem")
    run: Any = memtrace.load(tmp_path / RUN)
    assert set(run.read("role_mem").column("host")) == {"node1"}
    ((key, problems),) = run.problems.items()
    assert key.host == "node2" and "--save-findings" in problems[0]
    shutil.rmtree(tmp_path / FIRST / "role_mem")
    with pytest.raises(memtrace.FindingsError, match="--save-findings"):
        memtrace.load(tmp_path / RUN).read("role_mem")


def test_what_can_t_be_opened_is_told_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(TRAINING, tmp_path / FIRST)
    for host, text in (
        ("lost", None),
        ("half", "{"),
        ("later", '{"schema_version": {"major": 9}}'),
    ):
        folder = tmp_path / RUN / f"host={host}" / "rec=20261123T002646Z"
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "run.json").write_text(text)
    run: Any = memtrace.load(tmp_path / RUN)
    assert set(run.read("mem").column("host")) == {"node1"}
    assert {key.host for key in run.problems} == {"lost", "half", "later"}
    monkeypatch.chdir(tmp_path / RUN / "host=node1")
    here: Any = memtrace.load(".")
    assert here.hosts == ["node1"]
    shutil.rmtree(tmp_path / FIRST)
    with pytest.raises((OSError, ValueError)):
        memtrace.load(tmp_path / RUN).read("mem")


def test_a_signature_is_in_no_error() -> None:
    from memtrace._recording.bucket import _said

    url = "http://account/x?sv=2020&sig=TOPSECRET%3D&se=1"
    for kind in (OSError, PermissionError, ValueError):
        with pytest.raises(Exception) as caught, _said("az://x/y", "set it"):
            raise kind(f"Azure Error: failed for '{url}'")
        told = "".join(traceback.format_exception(caught.value))
        assert "TOPSECRET" not in told and "sig=***" in told, told


def test_what_can_t_be_read_names_the_way_out(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put_folder(TRAINING, FIRST)
    for address, error, words in (
        (f"s3://bucket/{RUN}x", FileNotFoundError, "has run=4711"),
        (f"s3://bucket/{RUN}/host=node9", FileNotFoundError, "has host=node1"),
        ("s3://bucket/nothing", FileNotFoundError, "there is nothing at s3://bucket/nothing"),
        (f"s3://bucket/{FIRST[:-1]}Y", FileNotFoundError, "is not a recording"),
        ("s3://bucket/memory", ValueError, "s3://bucket/memory/run=4711"),
        (
            f"s3://other/{RUN}",
            FileNotFoundError,
            "bucket of s3://other/memory/run=4711 does not exist",
        ),
        ("https://bucket/memory", ValueError, "write it like s3://bucket/prefix"),
        ("s3:///memory", ValueError, "names no bucket"),
        ("s3://key:secret@bucket/memory", ValueError, "names no bucket"),
    ):
        with pytest.raises(error, match=words):
            memtrace.load(address)
    there = memtrace.load(f"s3://bucket/{FIRST}")
    with pytest.raises(KeyError, match="no table 'x'; there are: cached_file"):
        there.read("x", ["boot_ns"])
    with pytest.raises(ValueError, match="process have no boot_ns"):
        there.read("process", since=1)
    with pytest.raises(TypeError, match=r"\['boot_ns'\]"):
        there.read("mem", "boot_ns")
    s3.fails_after = len(s3.asked)
    with pytest.raises(PermissionError, match=f"no permission for s3://bucket/{FIRST}/mem"):
        there.read("mem", ["boot_ns"])
    s3.fails_after = None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    for address in (RUN, FIRST):
        with pytest.raises(PermissionError, match="set AWS_ACCESS_KEY_ID"):
            memtrace.load(f"s3://bucket/{address}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1")
    with pytest.raises(ValueError, match="AWS_ALLOW_HTTP"):
        memtrace.load(f"s3://bucket/{RUN}")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises((PermissionError, ImportError), match=r"AZURE_STORAGE_ACCOUNT_NAME|built"):
        memtrace.load(f"az://container/{RUN}")


def test_a_pyarrow_without_the_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyarrow.fs.GcsFileSystem", raising=False)
    with pytest.raises(ImportError, match=r"built without GcsFileSystem.*pip install pyarrow"):
        memtrace.load(f"gs://bucket/{RUN}")
