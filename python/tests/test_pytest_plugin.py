"""The plugin of pytest, in runs of pytest of its own: against getrusage and known amounts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree
from typing import Any

import pytest
from conftest import FakeRecorder
from test_peak import MIB, READING, about, linux_only, more_than_we_had

from memtrace import _tests

pytest_plugins = ["pytester"]
pytestmark = linux_only

# What each run has: memory that is touched, and what was measured as JSON.
CONFTEST = """
import json, mmap, os
import pytest
from memtrace import _host

def touch(mebibytes):
    memory = mmap.mmap(-1, mebibytes << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, mebibytes << 20, mmap.PAGESIZE):
        memory[offset] = 1
    return memory

def pytest_runtest_logreport(report):
    if hasattr(report, "memtrace") and "PYTEST_XDIST_WORKER" not in os.environ:
        with open("measured", "a") as file:
            name = report.nodeid.partition("::")[2]
            print(json.dumps({"name": name, **report.memtrace}), file=file)
"""
HEAD = "import subprocess, sys, os, gc\nimport pytest\nfrom conftest import touch, _host\n"


class Ran:
    """A run of pytest that has ended."""

    def __init__(self, pytester: pytest.Pytester, code: str, *words: str) -> None:
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_it=HEAD + code)
        self.result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)
        self.text = self.result.stdout.str()
        measured = pytester.path / "measured"
        lines = measured.read_text().splitlines() if measured.exists() else []
        self.measured: dict[str, dict[str, Any]] = {}
        for one in map(json.loads, lines):
            self.measured[one.pop("name")] = one

    def outcomes(self, **expected: int) -> None:
        self.result.assert_outcomes(**expected)


def test_a_test_that_takes_more_than_its_limit_fails(pytester: pytest.Pytester) -> None:
    ran = Ran(
        pytester,
        """
@pytest.mark.memtrace(peak="60 MiB")
def test_over():
    touch(100)

@pytest.mark.memtrace(peak="150 MiB")
def test_within():
    touch(100)

@pytest.mark.xfail(strict=True)
@pytest.mark.memtrace(peak="60 MiB")
def test_expected():
    touch(100)

def test_unmarked():
    touch(100)

@pytest.mark.memtrace(peak="10 MiB")
class TestNearest:
    def test_over(self):
        touch(40)

    @pytest.mark.memtrace(peak=50 << 20)
    def test_within(self):
        touch(40)
""",
    )
    ran.outcomes(failed=2, passed=3, xfailed=1)
    assert "the limit is 60.0 MiB." in ran.text and "the limit is 10.0 MiB." in ran.text
    # Nothing is listed, nor measured, that nobody asked for.
    assert "peak RSS" not in ran.text and "test_unmarked" not in ran.measured
    for name, amount in (("test_over", 100), ("test_within", 100), ("TestNearest::test_over", 40)):
        assert about(ran.measured[name]["rise_bytes"], amount)


def test_the_peak_is_what_getrusage_says_in_the_test(pytester: pytest.Pytester) -> None:
    amount = more_than_we_had()
    code = f"""
import resource
before = touch({amount + 200})
before.close()

def test_it():
    touch({amount})
    with open("ru_maxrss", "w") as file:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=file)
"""
    ran = Ran(pytester, code, "--memtrace")
    measure = ran.measured["test_it"]
    maximum = int((pytester.path / "ru_maxrss").read_text())
    # The mark of what was there before is reset, so getrusage has this test's too.
    assert abs(measure["own_peak_bytes"] - maximum) <= READING + MIB
    assert about(measure["rise_bytes"], amount)
    assert "peak RSS" in ran.text and re.search(r"B +test_it.py::test_it", ran.text)


def test_what_fixtures_take_is_not_the_tests(pytester: pytest.Pytester) -> None:
    code = """
@pytest.fixture
def model():
    yield touch(100)

@pytest.mark.memtrace(peak="20 MiB", leak="2 MiB")
def test_it(model):
    pass
"""
    ran = Ran(pytester, code, "--memtrace")
    ran.outcomes(passed=1)
    assert "memory of 1 test =" in ran.text


def test_a_test_that_keeps_more_than_its_limit_fails(pytester: pytest.Pytester) -> None:
    code = """
kept = []

class Ring:
    def __init__(self, payload):
        self.itself, self.payload = self, payload

@pytest.mark.memtrace(leak="4 MiB")
def test_keeps():
    kept.append(touch(20))

@pytest.mark.memtrace(leak="4 MiB")
def test_keeps_garbage_alone():
    Ring(touch(20))

@pytest.mark.memtrace(leak="4 MiB")
def test_frees():
    [bytes(1000) for _ in range(40_000)]

@pytest.mark.memtrace(leak="4 MiB")
def test_leaves_a_child():
    code = "x = bytearray(b'1') * (30 << 20); print(1, flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    kept.append(child)
"""
    ran = Ran(pytester, code)
    ran.outcomes(failed=2, passed=2)
    assert about(ran.measured["test_keeps"]["stayed_bytes"], 20)
    assert about(ran.measured["test_leaves_a_child"]["stayed_bytes"], 33)
    assert "stayed after the test and a garbage collection; the limit is 4.0 MiB." in ran.text


def test_children_count_by_what_they_alone_hold(pytester: pytest.Pytester) -> None:
    code = """
import multiprocessing, time

def hold(mebibytes):
    memory = touch(mebibytes)
    time.sleep(0.7)

def test_programs():
    code = (
        "import resource, sys, time; x = bytearray(b'1') * (150 << 20); del x; time.sleep(0.7);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    output = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout
    with open("ru_maxrss", "wb") as file:
        file.write(output)

def test_forks():
    # All of its pages are a fork's too, and none of them counts in it.
    before = touch(200)
    children = [multiprocessing.get_context("fork").Process(target=hold, args=(30,))
        for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()

def test_short_ones():
    before = touch(200)
    for _ in range(100):
        subprocess.run(["true"])
"""
    ran = Ran(pytester, code, "--memtrace")
    ran.outcomes(passed=3)
    # Freed before the child slept: the kernel's mark has it. Of its RSS the libraries are shared.
    maximum = int((pytester.path / "ru_maxrss").read_text())
    program = ran.measured["test_programs"]
    assert maximum - 12 * MIB <= program["children_bytes"] <= maximum
    assert abs(program["rise_bytes"] - program["children_bytes"]) <= READING + 2 * MIB
    forks = ran.measured["test_forks"]
    assert 60 * MIB <= forks["children_bytes"] <= 80 * MIB
    assert 260 * MIB <= forks["rise_bytes"] <= 290 * MIB
    assert ran.measured["test_short_ones"]["children_bytes"] <= 20 * MIB


def test_of_a_child_counts_what_it_held_in_the_test(pytester: pytest.Pytester) -> None:
    code = """
import time

kept = []

def server():
    code = (
        "import sys; x = bytearray(b'1') * (100 << 20); del x; print(1, flush=True);"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    return child

@pytest.fixture(scope="module")
def older():
    with server() as child:
        yield child
        child.stdin.close()

def test_that_is_older_and_freed_it_before(older):
    time.sleep(0.5)

def test_that_freed_it_meanwhile_and_lives_on():
    kept.append(server())
    time.sleep(0.5)

def test_after():
    time.sleep(0.5)
    for child in kept:
        child.communicate()
"""
    ran = Ran(pytester, code, "--memtrace")
    ran.outcomes(passed=3)
    older = ran.measured["test_that_is_older_and_freed_it_before"]
    assert older["rise_bytes"] <= 20 * MIB and older["children_bytes"] <= 20 * MIB
    living = ran.measured["test_that_freed_it_meanwhile_and_lives_on"]
    assert 100 * MIB <= living["rise_bytes"] <= 140 * MIB and living["stayed_bytes"] <= 20 * MIB
    assert ran.measured["test_after"]["children_bytes"] <= 40 * MIB


def test_a_test_may_replace_what_children_are_started_and_read_with(
    pytester: pytest.Pytester,
) -> None:
    code = """
import unittest.mock

@pytest.fixture(autouse=True)
def replaced():
    child = subprocess.Popen(["sleep", "100"])
    with unittest.mock.patch("subprocess.Popen") as popen, unittest.mock.patch("builtins.open"):
        yield popen
    child.kill()
    child.wait()

@pytest.mark.memtrace(peak="50 MiB")
def test_it(replaced):
    subprocess.Popen("ls")
    replaced.assert_called_once_with("ls")
"""
    ran = Ran(pytester, code)
    ran.outcomes(passed=1)
    assert "memtrace: children" not in ran.text


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ('peak="200 foo"', "peak: '200 foo' is not a size: write a number and a unit (B, KB"),
        ("peak=1.5", "peak: 1.5 is not a size"),
        ("leak=-1", "leak: -1 is less than nothing"),
        ('top="1 MiB"', "there is no limit 'top'; there are: peak, leak"),
        ('"1 MiB"', 'limits have names: @pytest.mark.memtrace(peak="1 MiB")'),
        ("", 'a limit is missing: @pytest.mark.memtrace(peak="200 MiB")'),
    ],
)
def test_an_odd_limit_is_an_error_that_says_why(
    pytester: pytest.Pytester, limits: str, message: str
) -> None:
    ran = Ran(pytester, f"@pytest.mark.memtrace({limits})\ndef test_it():\n    pass\n")
    ran.outcomes(errors=1)
    assert f"@pytest.mark.memtrace: {message}" in ran.text
    assert "_tests.py" not in ran.text


def test_workers_of_xdist_report_to_their_controller(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    code = """
@pytest.mark.memtrace(peak="30 MiB")
@pytest.mark.parametrize("mebibytes", [10, 20, 60, 70])
def test_it(mebibytes):
    touch(mebibytes)
"""
    ran = Ran(pytester, code, "--memtrace", "-n", "2")
    ran.outcomes(passed=2, failed=2)
    for amount in (10, 20, 60, 70):
        assert about(ran.measured[f"test_it[{amount}]"]["rise_bytes"], amount)
        assert f"test_it.py::test_it[{amount}]" in ran.text.partition("memory of 4 tests")[2]


def test_without_a_reset_a_limit_is_judged_or_said_not_to_be(pytester: pytest.Pytester) -> None:
    code = """
_host.reset_hiwater = lambda: False
before = touch(100)
before.close()

@pytest.mark.memtrace(peak="20 MiB")
def test_unknown():
    touch(10)

@pytest.mark.memtrace(peak="200 MiB")
def test_within():
    touch(10)

@pytest.mark.memtrace(peak="20 MiB")
def test_keeping():
    kept.append(touch(30))

@pytest.mark.memtrace(peak="20 MiB")
def test_with_a_child():
    code = "import time; x = bytearray(b'1') * (40 << 20); time.sleep(0.3)"
    subprocess.run([sys.executable, "-c", code])

@pytest.mark.memtrace(peak="20 MiB")
def test_rising():
    touch(150)

kept = []
"""
    ran = Ran(pytester, code, "--memtrace")
    ran.outcomes(passed=2, failed=3)
    # The summary of pytest repeats a message where it is not cut, as in CI.
    assert len(set(re.findall(r"memory rose by at least (?:30|4\d)\.\d MiB above", ran.text))) == 2
    unjudged = ran.text.partition("limits that could not be judged")[2]
    assert unjudged.count("could not be reset") == 1
    assert re.search(r"test_unknown: the rise of memory is [\d.]+ MiB at most", unjudged)
    assert re.search(r"≤ [\d.]+ MiB .*test_it.py::test_within", ran.text)
    assert about(ran.measured["test_unknown"]["rise_at_most_bytes"], 100)
    assert ran.measured["test_unknown"]["rise_bytes"] is None


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_junit_file_has_what_a_test_took_and_kept(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    code = """
kept = []

def test_it(record_property):
    record_property("mine", 1)
    kept.append(touch(20))
"""
    Ran(pytester, code, "--memtrace", "--junit-xml=junit.xml", *workers)
    told = {
        one.attrib["name"]: int(one.attrib["value"])
        for one in xml.etree.ElementTree.parse(pytester.path / "junit.xml").iter("property")
    }
    assert told.keys() == {"mine", "memtrace_rise_bytes", "memtrace_stayed_bytes"}
    assert about(told["memtrace_rise_bytes"], 20) and about(told["memtrace_stayed_bytes"], 20)


def test_with_getrusage_alone_limits_are_judged_where_they_can_be(
    pytester: pytest.Pytester,
) -> None:
    code = f"""
# As on macOS.
_host.resident = lambda: None
_host.memory = lambda: _host.HostMemory(None, None)
_host.reset_hiwater = lambda: False

@pytest.mark.memtrace(peak="64 GiB")
def test_within():
    touch(10)

@pytest.mark.memtrace(peak="1 MiB")
def test_unknown():
    pass

@pytest.mark.memtrace(peak="20 MiB")
def test_rising():
    touch({more_than_we_had() + 50})
"""
    ran = Ran(pytester, code)
    ran.outcomes(passed=2, failed=1)
    assert re.search(r"memory rose by at least [\d.]+ MiB .* above", ran.text)
    unjudged = ran.text.partition("limits that could not be judged")[2]
    assert re.search(r"test_unknown: the rise of memory is [\d.]+ MiB at most", unjudged)
    assert "test_within: " not in unjudged


def test_a_list_is_cut_and_says_so(pytester: pytest.Pytester) -> None:
    code = "@pytest.mark.parametrize('n', range(5))\ndef test_it(n):\n    touch(n * 8 + 8)\n"
    ran = Ran(pytester, code, "--memtrace", "--memtrace-top=2")
    assert "3 more tests: --memtrace-top=0 shows all" in ran.text
    listed = re.findall(r"B +test_it.py::test_it\[(\d)\]", ran.text)
    assert listed[:2] == ["4", "3"]


def test_a_sampler_that_is_gone_is_said_and_fails_nothing(pytester: pytest.Pytester) -> None:
    code = """
import signal

def test_it():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read().split("\\0")
        except OSError:
            # It has ended meanwhile.
            continue
        if words[-3:-2] == [str(os.getpid())] and "_children.py" in words[-4]:
            os.kill(int(pid), signal.SIGKILL)

def test_after():
    touch(30)
"""
    ran = Ran(pytester, code, "--memtrace")
    ran.outcomes(passed=2)
    assert "children are not counted: the sampler is gone" in ran.text
    assert about(ran.measured["test_after"]["rise_bytes"], 30)


def test_an_interpreter_need_not_have_ctypes(pytester: pytest.Pytester) -> None:
    code = """
sys.modules["ctypes"] = None

@pytest.mark.memtrace(leak="4 MiB")
def test_it():
    pass
"""
    Ran(pytester, code).outcomes(passed=1)


def test_a_program_may_have_more_descriptors_than_select_takes(
    pytester: pytest.Pytester,
) -> None:
    code = """
import resource, subprocess
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
if most <= 1200:
    pytest.skip("so many can't be had here", allow_module_level=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]

def test_it():
    subprocess.run(["sleep", "0.1"])
"""
    ran = Ran(pytester, code, "--memtrace")
    ran.outcomes(passed=1)
    assert ran.measured["test_it"]["children_bytes"] > 0


def test_the_sampler_is_no_child_and_ends_with_the_run(pytester: pytest.Pytester) -> None:
    code = """
from memtrace import _children

def test_it():
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    with open("pid", "w") as file:
        print(os.getpid(), file=file)
"""
    Ran(pytester, code, "--memtrace").outcomes(passed=1)
    pid = (pytester.path / "pid").read_text().strip()
    for _ in range(100):
        if not any(_is_sampler_of(pid, process) for process in os.listdir("/proc")):
            return
        time.sleep(0.05)
    raise AssertionError("the sampler goes on")


def test_the_sampler_of_a_first_process_is_no_child_that_counts(
    pytester: pytest.Pytester,
) -> None:
    # An orphan is a child of the first process of its PID namespace: pytest, in a container.
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*namespace, "true"]).returncode != 0:
        pytest.skip("no PID namespace can be made here")
    pytester.makepyfile(test_it="def test_it():\n    pass\n")
    command = [*namespace, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--memtrace"]
    text = pytester.run(*command).stdout.str()
    assert re.search(r" 0 B +test_it.py::test_it", text), text
    assert "children are not counted" not in text


def _is_sampler_of(pid: str, process: str) -> bool:
    try:
        with open(f"/proc/{process}/cmdline") as file:
            words = file.read().split("\0")
    except OSError:
        return False
    return words[-3:-2] == [pid] and "_children.py" in words[-4]


def test_in_a_recording_each_measured_test_is_a_phase(
    pytester: pytest.Pytester, recorder: FakeRecorder
) -> None:
    Ran(pytester, "def test_it():\n    pass\n", "--memtrace")
    names = [(message["kind"], message["name"]) for message in recorder.messages()]
    assert ("begin", "test_it.py::test_it") in names and ("end", "test_it.py::test_it") in names


def test_a_run_in_which_no_test_is_measured_does_not_import_the_package(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("import sys\n\ndef test_it():\n    assert 'memtrace' not in sys.modules\n")
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=1)


def test_the_package_may_be_imported_before_pytest(pytester: pytest.Pytester) -> None:
    # pytest itself does that where the package is installed, and not just linked to.
    pytester.makeconftest("import pytest\npytest.register_assert_rewrite('memtrace')\n")
    pytester.makepyfile("def test_it():\n    pass\n")
    code = "import sys, memtrace, pytest; sys.exit(pytest.main(['-W', 'error']))"
    pytester.run(sys.executable, "-c", code).assert_outcomes(passed=1)


def test_a_limit_fails_a_test_with_an_old_pluggy_too() -> None:
    class Outcome:
        """Of pluggy 1.0."""

        _excinfo: Any = None

    outcome = Outcome()
    error = ValueError("too much")
    _tests._force(outcome, error)
    assert outcome._excinfo == (ValueError, error, None)


def test_the_plugin_can_be_left_out(pytester: pytest.Pytester) -> None:
    Ran(pytester, "def test_it():\n    pass\n", "-p", "no:memtrace").outcomes(passed=1)
