"""Wraps functions of other packages so that each call is a phase, from outside.

A module that is loaded already is wrapped at once; others when they are imported, by a
finder in `sys.meta_path` that lets the usual finders find the module and wraps what was
asked for after it ran. An import never fails because of that: what cannot be wrapped is
reported, once, and left as it is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import os
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

from . import _arrays, _host, _lists, _recorder
from ._marks import phase
from ._wrap import wrapped

_MARKER = "__memtrace_target__"


class _MeasuredPhase(phase):
    """A phase that tells what RSS changed by, too."""

    __slots__ = ("_begin_rss",)

    def _at_begin(self) -> dict[str, Any]:
        attrs = super()._at_begin()
        self._begin_rss = attrs.get(_host.RSS_ATTRIBUTE)
        return attrs

    def _at_end(self) -> dict[str, Any]:
        attrs = super()._at_end()
        rss = attrs.get(_host.RSS_ATTRIBUTE)
        if rss is not None and self._begin_rss is not None:
            attrs["rss_delta_bytes"] = rss - self._begin_rss
        return attrs


def instrument(*targets: str) -> None:
    """Makes each call of the named functions a phase, with RSS before and after it.

    Constructions tell, too, what the arrays take that the object has then: ``arrays_bytes``,
    ``arrays_gpu_bytes`` for those on GPUs, and the largest of them by name in ``arrays``.

    A target is ``module:function``, ``module:Class.method``, ``module:Class`` (its
    construction), or the name of a built-in list (``vllm``). Modules that are not imported
    yet are wrapped when they are. A name that does not exist is reported by a warning and
    by the mark `memtrace.instrument.missing`, and skipped. Names that other modules have
    already taken by ``from module import function`` stay as they were.
    """
    for target in targets:
        if target in _lists.LISTS:
            for part in _lists.LISTS[target]:
                _add_part(part)
        elif _TARGET.match(target):
            _add_part((target,))
        else:
            known = ", ".join(sorted(_lists.LISTS))
            _report(target, f"is neither module:function, module:Class.method nor one of: {known}")


_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


class _Part:
    """Names for one thing. It is missing when none of them exists."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.label = targets[0]
        self.left = set(targets)


class _Target:
    """One name of a part."""

    def __init__(self, part: _Part, target: str) -> None:
        self.part = part
        self.target = target
        self.module, _, name = target.partition(":")
        self.path = name.split(".")

    def is_missing(self, reason: str) -> None:
        self.part.left.discard(self.target)
        if not self.part.left:
            _report(self.part.label, reason)


def _add_part(names: Sequence[str]) -> None:
    part = _Part(names)
    for name in names:
        if name not in _added:
            _added.add(name)
            _finder.add(_Target(part, name))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be wrapped, through the finders behind it."""

    def __init__(self) -> None:
        # By module. They stay here after its import, for a reload.
        self.targets: dict[str, list[_Target]] = {}
        # By package: targets in modules below it, to be looked for when it was imported.
        self.below: dict[str, list[_Target]] = {}
        self.busy = threading.local()

    def add(self, target: _Target) -> None:
        self.targets.setdefault(target.module, []).append(target)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        loaded = sys.modules.get(target.module)
        package = target.module.partition(".")[0]
        if loaded is not None:
            _wrap_in(loaded, target)
        elif package in sys.modules:
            _look_for(target)
        elif package != target.module:
            self.below.setdefault(package, []).append(target)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.targets and fullname not in self.below:
            return None
        underway: set[str] = self.busy.__dict__.setdefault("names", set())
        if fullname in underway:
            # Another finder that asks the others, us included.
            return None
        underway.add(fullname)
        try:
            spec = self._spec_from_others(fullname, path, target)
        finally:
            underway.discard(fullname)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = cast(importlib.abc.Loader, _Loader(spec.loader, self))
        return spec

    def _spec_from_others(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None,
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def loaded(self, module: types.ModuleType, fullname: str) -> None:
        """A module has run that has targets, or modules with targets below it."""
        # A module may put something else in its own place.
        actual = sys.modules.get(fullname, module)
        for target in self.targets.get(fullname, []):
            _wrap_in(actual, target)
        for target in self.below.pop(fullname, []):
            if target.module not in sys.modules:
                _look_for(target)


class _Loader:
    """Runs a module by its own loader, then wraps what was asked for in it."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling ask before there is a loader.
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        # The module and all who ask it shall see its own loader.
        name = module.__name__
        if module.__spec__ is not None:
            name = module.__spec__.name
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._finder.loaded(module, name)
        except Exception as error:
            _report(name, f"could not be instrumented: {error!r}")


_finder = _Finder()
_added: set[str] = set()
_reported: set[str] = set()


class _Missing(Exception):
    """A name that is not there."""


def _wrap_in(module: types.ModuleType, target: _Target) -> None:
    try:
        _wrap(module, target.target, target.path)
    except _Missing:
        target.is_missing("does not exist in the installed version")
    except Exception as error:
        target.is_missing(f"could not be wrapped: {error!r}")


def _wrap(module: types.ModuleType, target: str, path: Sequence[str]) -> None:
    owner: Any = module
    for name in path[:-1]:
        owner, _ = _member(owner, name)
    found, _ = _member(owner, path[-1])
    if isinstance(found, type):
        owner, path = found, [*path, "__init__"]
    function, stored = _member(owner, path[-1])
    if getattr(function, _MARKER, None) == target:
        return
    label = ".".join(path)
    attrs = {"function": target}

    def section() -> phase:
        return _MeasuredPhase(label, **attrs)

    wrapper: Any
    if target in _lists.VERL_STEPS:
        wrapper = _lists.VERL_STEPS[target](function)
    elif path[-1] == "__init__":
        wrapper = _constructor(function, section, target)
    else:
        wrapper = wrapped(function, section)
    setattr(wrapper, _MARKER, target)
    is_bound = isinstance(stored, (staticmethod, classmethod))
    setattr(owner, path[-1], type(stored)(wrapper) if is_bound else wrapper)


def _constructor(function: Any, section: Callable[[], phase], target: str) -> Any:
    """An `__init__` whose phase tells, too, what the arrays take that the object has then."""

    @functools.wraps(function)
    def construct(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if _recorder.active is None:
            return function(self, *args, **kwargs)
        with section() as construction:
            # Python refuses what it returns, unless that is None.
            returned = function(self, *args, **kwargs)
            _tell_arrays(construction, self, target)
        return returned

    return construct


def _tell_arrays(construction: phase, built: object, target: str) -> None:
    # What an object has may run anybody's code when it is asked. Its construction must not fail
    # because of us.
    try:
        construction.set(**_arrays.attributes(built))
    except Exception as error:
        with contextlib.suppress(Exception):
            reason = f"cannot be asked for its arrays ({type(error).__name__})"
            _report(target, reason, mark="memtrace.instrument.arrays")


def _member(owner: Any, name: str) -> tuple[Any, Any]:
    """A member as one gets it, and as it is stored (with a class's staticmethod)."""
    # No getattr: a module's or a metaclass's __getattr__ may import half a framework.
    spaces = owner.__mro__ if isinstance(owner, type) else (owner,)
    for space in spaces:
        if name in vars(space):
            stored = vars(space)[name]
            is_bound = isinstance(stored, (staticmethod, classmethod))
            return (stored.__func__ if is_bound else stored), stored
    raise _Missing(name)


def _look_for(target: _Target) -> None:
    """Finds out whether the imported package has the module of a target.

    Only looks for its file: importing it is the program's business.
    """
    fullname, *rest = target.module.split(".")
    path = getattr(sys.modules.get(fullname), "__path__", None)
    for part in rest:
        fullname = f"{fullname}.{part}"
        if fullname in sys.modules:
            path = getattr(sys.modules[fullname], "__path__", None)
            continue
        spec = path and importlib.machinery.PathFinder.find_spec(fullname, list(path))
        if not spec:
            target.is_missing("is in a module that the installed version does not have")
            return
        path = spec.submodule_search_locations


# The names that this process or one above it has warned of: a hundred spawned workers with the
# same installed version say nothing new.
_SAID = "MEMTRACE_INSTRUMENT_MISSING"


def _is_first_to_say(target: str) -> bool:
    said = os.environ.get(_SAID)
    if said is not None and target in said.split(","):
        return False
    # A name with a NUL in it cannot be told to those below.
    with contextlib.suppress(ValueError):
        os.environ[_SAID] = target if said is None else f"{said},{target}"
    return True


def _report(target: str, reason: str, mark: str = "memtrace.instrument.missing") -> None:
    if target in _reported:
        return
    _reported.add(target)
    recorder = _recorder.active
    if recorder is not None:
        attrs = {"target": target, "reason": reason}
        boot = _recorder.boot_ns()
        recorder.tell("instant", mark, boot, attrs=attrs)
    if not _is_first_to_say(target):
        return
    # Where warnings are errors, too, an import must not fail because of us.
    with contextlib.suppress(Warning):
        warnings.warn(f"memtrace: {target} {reason}; skipped", RuntimeWarning, stacklevel=3)
