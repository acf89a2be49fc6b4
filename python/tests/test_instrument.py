"""Instrumenting packages from outside: at once, at import, and from the environment."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SOURCES, FakeRecorder, run_python

import memtrace
from memtrace import _instrument, _lists

PACKAGE = {
    "__init__.py": "",
    "early.py": "def build(n):\n    return [n] * n\n",
    "model.py": '''
        """A module."""
        import abc
        import numpy
        def load(path, *, size=1):
            """Loads."""
            return (path, size)
        class Base:
            def warm_up(self):
                return "base"
        class Model(Base):
            def __init__(self, n):
                self.n = n
                self.tokens = numpy.zeros(n << 20, dtype="int8")
            @staticmethod
            def fixed(n):
                return n + 1
            @classmethod
            def named(cls, n):
                return cls.__name__, n
            class Inner:
                async def run(self):
                    return "ran"
        class Odd:
            def __init__(self, fails=None):
                if fails is not None:
                    raise fails
            @property
            def __dict__(self):
                raise RuntimeError("dictionary changed size during iteration")
        class Wrong:
            def __init__(self):
                return 5
        class Named:
            def __init__(this, **options):
                this.options = options
        constant = 5
    ''',
    "user.py": "from pkg_under_test.model import load\n\ndef use():\n    return load('x')\n",
    "broken.py": "raise ImportError('own fault')\n",
    "swap.py": """
        import sys, types
        other = types.ModuleType(__name__)
        other.f = lambda: 1
        sys.modules[__name__] = other
    """,
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that can be imported, afresh for each test."""
    name = "pkg_under_test"
    directory = tmp_path / name
    directory.mkdir()
    for file, text in PACKAGE.items():
        (directory / file).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(_instrument, "_added", set())
    monkeypatch.delenv("MEMTRACE_INSTRUMENT_MISSING", raising=False)
    monkeypatch.setattr(_instrument, "_reported", set())
    monkeypatch.setattr(_instrument, "_finder", _instrument._Finder())
    meta_path = list(sys.meta_path)
    yield name
    sys.meta_path[:] = meta_path
    for loaded in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[loaded]


def names_told(recorder: FakeRecorder) -> list[tuple[str, str]]:
    return [(message["kind"], message["name"]) for message in recorder.messages()]


def test_a_module_is_instrumented_when_it_is_imported(recorder: FakeRecorder, package: str) -> None:
    memtrace.instrument(f"{package}.model:load")
    model = importlib.import_module(f"{package}.model")
    assert model.load("a", size=2) == ("a", 2)
    begin, end = recorder.messages()
    assert (begin["kind"], begin["name"]) == ("begin", "load")
    assert begin["attrs"]["function"] == f"{package}.model:load"
    assert begin["attrs"]["rss_bytes"] > 0
    change = end["attrs"]["rss_bytes"] - begin["attrs"]["rss_bytes"]
    assert end["attrs"]["rss_delta_bytes"] == change
    assert model.load.__doc__ == "Loads."
    assert list(inspect.signature(model.load).parameters) == ["path", "size"]


def test_who_imports_the_name_later_gets_the_instrumented_one(
    recorder: FakeRecorder, package: str
) -> None:
    memtrace.instrument(f"{package}.model:load")
    assert importlib.import_module(f"{package}.user").use() == ("x", 1)
    assert names_told(recorder) == [("begin", "load"), ("end", "load")]


def test_a_module_that_is_loaded_is_instrumented_at_once(
    recorder: FakeRecorder, package: str
) -> None:
    early = importlib.import_module(f"{package}.early")
    memtrace.instrument(f"{package}.early:build")
    assert early.build(2) == [2, 2]
    assert names_told(recorder) == [("begin", "build"), ("end", "build")]


def test_methods_of_every_kind_keep_their_kind(recorder: FakeRecorder, package: str) -> None:
    memtrace.instrument(
        *(
            f"{package}.model:Model{name}"
            for name in ("", ".fixed", ".named", ".warm_up", ".Inner.run")
        )
    )
    model = importlib.import_module(f"{package}.model").Model(3)
    assert model.n == 3
    constructed = recorder.messages()[-1]["attrs"]
    assert (constructed["arrays_bytes"], constructed["arrays"]) == (3 << 20, "tokens 3.0 MiB")
    told = [("begin", "Model.__init__"), ("end", "Model.__init__")]
    assert (model.fixed(1), type(model).fixed(2)) == (2, 3)
    assert (model.named(1), type(model).named(2)) == (("Model", 1), ("Model", 2))
    told += names_told(recorder)
    assert model.warm_up() == "base"
    assert asyncio.run(model.Inner().run()) == "ran"
    told += names_told(recorder)
    begun = [name for kind, name in told if kind == "begin"]
    assert begun == [
        "Model.__init__",
        *["Model.fixed"] * 2,
        *["Model.named"] * 2,
        "Model.warm_up",
        "Model.Inner.run",
    ]


def test_a_construction_whose_arrays_cannot_be_asked_goes_on_and_that_is_said_once(
    recorder: FakeRecorder, package: str
) -> None:
    memtrace.instrument(f"{package}.model:Odd")
    model = importlib.import_module(f"{package}.model")
    with pytest.warns(RuntimeWarning, match=r"model:Odd cannot be asked for its arrays") as warned:
        built = [model.Odd() for _ in range(2)]
    assert [type(one) for one in built] == [model.Odd] * 2
    assert len(warned) == 1
    told, odd = names_told(recorder), "Odd.__init__"
    said = ("instant", "memtrace.instrument.arrays")
    assert told == [("begin", odd), said, ("end", odd), ("begin", odd), ("end", odd)]


def test_a_construction_that_fails_fails_as_without_us_and_its_phase_ends(
    recorder: FakeRecorder, package: str
) -> None:
    names = [f"{package}.model:{name}" for name in ("Odd", "Wrong", "Named")]
    memtrace.instrument(*names)
    model = importlib.import_module(f"{package}.model")
    own = KeyError("own fault")
    with pytest.raises(KeyError) as raised:
        model.Odd(own)
    assert raised.value is own
    with pytest.raises(TypeError, match="should return None"):
        model.Wrong()
    with pytest.raises(TypeError, match="unexpected keyword argument 'wish'"):
        model.Odd(wish=1)
    assert model.Named(self=1).options == {"self": 1}
    ends = [message for message in recorder.messages() if message["kind"] == "end"]
    assert [end["attrs"].get("error") for end in ends] == ["KeyError", None, "TypeError", None]


def test_nothing_is_wrapped_twice_also_after_a_reload(recorder: FakeRecorder, package: str) -> None:
    memtrace.instrument(f"{package}.model:load", f"{package}.model:load")
    model = importlib.import_module(f"{package}.model")
    memtrace.instrument(f"{package}.model:load")
    importlib.reload(model).load("a")
    assert len(names_told(recorder)) == 2


def test_the_module_looks_as_if_nobody_had_been_there(package: str) -> None:
    memtrace.instrument(f"{package}.model:load")
    model = importlib.import_module(f"{package}.model")
    assert type(model.__loader__).__name__ == "SourceFileLoader"
    assert model.__spec__ is not None
    assert model.__spec__.loader is model.__loader__
    assert '"""A module."""' in inspect.getsource(model)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("model:gone", "does not exist"),
        ("model:Model.gone", "does not exist"),
        ("model:Gone.method", "does not exist"),
        ("model:constant", "could not be wrapped"),
        ("nowhere:f", "in a module that the installed version does not have"),
        ("nowhere.deeper:f", "in a module that the installed version does not have"),
    ],
)
def test_a_name_that_is_missing_is_reported_once_and_skipped(
    recorder: FakeRecorder, package: str, target: str, reason: str
) -> None:
    target = f"{package}.{target}"
    memtrace.instrument(target, f"{package}.model:load")
    with pytest.warns(RuntimeWarning, match=reason) as warned:
        model = importlib.import_module(f"{package}.model")
        importlib.reload(model)
    assert len(warned) == 1
    (message,) = recorder.messages()
    assert message["name"] == "memtrace.instrument.missing"
    assert message["attrs"]["target"] == target
    assert model.load("a") == ("a", 1)
    assert len(recorder.messages()) == 2


def test_a_name_that_moved_is_missing_only_when_it_is_nowhere(
    recorder: FakeRecorder, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = (
        (f"{package}.new:load", f"{package}.model:load"),
        (f"{package}.new:gone", f"{package}.model:gone"),
    )
    monkeypatch.setattr(_lists, "LISTS", {package: parts})
    memtrace.instrument(package)
    with pytest.warns(RuntimeWarning, match="new:gone") as warned:
        importlib.import_module(f"{package}.model").load("a")
    assert len(warned) == 1
    assert len(recorder.messages()) == 3


@pytest.mark.parametrize("target", ["no-such-list", "a:", ":b", "a:b:c", "a b:c", "a\0b:c", ""])
def test_what_is_no_target_is_reported(package: str, target: str) -> None:
    with pytest.warns(RuntimeWarning, match="module:function"):
        memtrace.instrument(target)


def test_an_import_that_fails_fails_as_without_us(package: str) -> None:
    memtrace.instrument(f"{package}.broken:f", f"{package}.absent:f")
    with pytest.raises(ImportError, match="own fault"):
        importlib.import_module(f"{package}.broken")
    assert f"{package}.broken" not in sys.modules


def test_a_module_that_puts_another_in_its_place_is_instrumented_there(
    recorder: FakeRecorder, package: str
) -> None:
    memtrace.instrument(f"{package}.swap:f")
    assert importlib.import_module(f"{package}.swap").f() == 1
    assert len(recorder.messages()) == 2


def test_another_finder_that_asks_all_finders_does_not_recurse(
    recorder: FakeRecorder, package: str
) -> None:
    class Asking:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            for finder in sys.meta_path:
                if finder is not Asking:
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        return spec
            return None

    memtrace.instrument(f"{package}.model:load")
    sys.meta_path.insert(0, Asking)
    sys.meta_path.append(Asking)
    importlib.import_module(f"{package}.model").load("a")
    assert len(recorder.messages()) == 2


@pytest.mark.parametrize("name", ["verl", "vllm"])
def test_a_list_is_well_formed(name: str) -> None:
    targets = [target for part in _lists.LISTS[name] for target in part]
    assert len(set(targets)) == len(targets)
    for target in targets:
        assert _instrument._TARGET.match(target), target
        assert target.startswith(f"{name}.")


START = (Path(SOURCES).parent / "memtrace.pth").read_text()
PROGRAM = """
import multiprocessing, sys

def child():
    import pkg_under_test.model
    pkg_under_test.model.load("child")

if __name__ == "__main__":
    import pkg_under_test.model
    pkg_under_test.model.load("parent")
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
"""


@pytest.fixture
def site(tmp_path: Path, package: str) -> str:
    """A site directory with the package's .pth file, and a program beside it."""
    (tmp_path / "memtrace.pth").write_text(START)
    (tmp_path / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(tmp_path)!r})\n")
    (tmp_path / "main.py").write_text(PROGRAM)
    return f"{tmp_path}:{SOURCES}"


def test_the_environment_instruments_a_program_and_its_spawned_children(
    recorder: FakeRecorder, site: str, tmp_path: Path
) -> None:
    ran = run_python(
        str(tmp_path / "main.py"),
        PYTHONPATH=site,
        MEMTRACE_INSTRUMENT=" pkg_under_test.model:load, ,pkg_under_test.model:gone",
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("pkg_under_test.model:gone does not exist") == 1
    messages = recorder.messages()
    missing = [message for message in messages if message["name"].endswith(".missing")]
    assert len(missing) == 2, "each process for itself"
    begun = [message["name"] for message in messages if message["kind"] == "begin"]
    assert begun == ["load", "load"]


@pytest.mark.parametrize("variable", ["MEMTRACE_INSTRUMENT", "MEMTRACE_SOCKET"])
def test_the_hook_is_inert_without_the_variables(
    recorder: FakeRecorder, site: str, variable: str
) -> None:
    environment = {"MEMTRACE_INSTRUMENT": "vllm", "PYTHONPATH": site, variable: ""}
    ran = run_python("-c", "import sys; print('memtrace' in sys.modules)", **environment)
    assert (ran.stdout, ran.stderr) == ("False\n", "")


def test_the_hook_costs_less_than_50_us(package: str) -> None:
    line = START.strip()
    best = 1e9
    for _ in range(2000):
        began = time.perf_counter_ns()
        exec(line)  # As site does.
        best = min(best, time.perf_counter_ns() - began)
    assert best < 50_000
    assert "memtrace._environment" not in sys.modules
