"""The magic of notebooks, in an IPython of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import FakeRecorder, run_python
from test_peak import MIB, READING, linux_only, more_than_we_had

from memtrace._jupyter import CellMemory, Phase
from memtrace._measure import Measure

pytest.importorskip("IPython")

SCRIPT = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from memtrace import _recorder

shell = InteractiveShell.instance(colors="NoColor")
shell.run_line_magic("load_ext", "memtrace")
shell.run_cell("import memtrace, resource, mmap")
shell.run_cell('''
def touch(mebibytes):
    memory = mmap.mmap(-1, mebibytes << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, mebibytes << 20, mmap.PAGESIZE):
        memory[offset] = 1
    return memory
''')
more = int(sys.argv[1])
shell.run_cell(f"more = {more}; touch(more + 300).close()")
result = shell.run_cell('''%%memtrace load
with memtrace.phase("model"):
    kept = touch(100)
    with memtrace.peak("batch"):
        touch(more).close()
print("maximum", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
''')
print("success", result.success)
result = shell.run_cell("%%memtrace\\n1 / 0")
print("success", result.success, _recorder.active is None)
"""


def shown_bytes(text: str) -> float:
    number, unit = text.split()
    return (
        float(number.replace(",", "")) * {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}[unit]
    )


@linux_only
def test_a_cell_shows_its_peak_what_stays_and_its_phases(tmp_path: Path) -> None:
    more = more_than_we_had()
    ran = run_python("-c", SCRIPT, str(more), IPYTHONDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    line = re.search(
        r"peak (\S+ \S+) \(± .*\), (\S+ \S+) above the start; (\S+ \S+) stayed", ran.stdout
    )
    assert line is not None, ran.stdout
    peak, rise, stayed = map(shown_bytes, line.groups())
    maximum = re.search(r"maximum (\d+)", ran.stdout)
    assert maximum is not None
    # What was there before is not in it.
    assert abs(peak - int(maximum[1])) <= READING + MIB
    assert abs(rise - (more + 100) * MIB) <= 2 * READING + 4 * MIB
    assert 100 * MIB <= stayed <= 104 * MIB
    assert re.search(r"^model .* s +10\d\.\d MiB$", ran.stdout, re.MULTILINE)
    assert re.search(rf"^  batch .* s .* {re.escape(line[1])}$", ran.stdout, re.MULTILINE)
    assert "success True\n" in ran.stdout


@linux_only
def test_a_cell_that_fails_is_measured_shown_once_and_stops_the_notebook(tmp_path: Path) -> None:
    ran = run_python("-c", SCRIPT, "8", IPYTHONDIR=str(tmp_path))
    failed = ran.stdout.partition("success True")[2]
    assert failed.count("ZeroDivisionError: ") == 1
    assert "above the start" in failed and "_CellFailed" not in failed
    assert failed.rstrip().endswith("success False True")


@linux_only
def test_a_recorder_gets_the_marks_of_a_cell_all_the_same(
    tmp_path: Path, recorder: FakeRecorder
) -> None:
    run_python("-c", SCRIPT, "8", IPYTHONDIR=str(tmp_path), MEMTRACE_SOCKET=recorder.path)
    told = [(one["kind"], one["name"]) for one in recorder.messages() if one["kind"] != "peak"]
    names = ["load", "model", "batch"]
    assert told[:6] == [("begin", n) for n in names] + [("end", n) for n in reversed(names)]


def test_names_of_phases_are_text_in_a_notebook() -> None:
    class Peak:
        bytes = at_most_bytes = 3 * MIB
        seconds, gpu = 1.0, None

    class Section:
        peak = Peak()

    measure = Measure(MIB, MIB, MIB, 3 * MIB, 0, None, None)
    phases = [Phase("<script>", 1, 0.5, MIB, None)]
    memory = CellMemory(Section(), measure, phases, "no /proc")  # type: ignore[arg-type]
    assert "&lt;script&gt;" in memory._repr_html_() and "<script>" not in memory._repr_html_()
    assert "peak 3.0 MiB, 1.0 MiB above the start; 0 B stayed; 1 s" in repr(memory)
    assert "children are not counted: no /proc" in repr(memory)
