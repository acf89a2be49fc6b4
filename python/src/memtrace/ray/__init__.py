"""A recorder on every node of a Ray cluster, and all recordings under one root.

``memtrace.ray.record`` records while a block runs, ``python3 -m memtrace.ray`` does it from a
shell. The program ``memtrace`` has to be on each node; this package need not be.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import ray

from . import _controller
from ._train import step_phases

__all__ = ["Recording", "record", "start", "status", "step_phases", "stop"]

STOP_SECONDS = 120.0
"""So long `stop` waits for recordings to be closed and carried to the root."""


class Recording(NamedTuple):
    """A recording of a cluster that has begun."""

    root: str
    run: str
    nodes: list[dict[str, Any]]
    """Each node: `host`, `state` (`recording`, or `failed`), and in `says` how it observes, or why
    it does not."""


def start(
    root: str,
    *,
    run: str | None = None,
    address: str | None = None,
    program: str = "memtrace",
    **options: object,
) -> Recording:
    """Starts a recorder on every node, and on those that join later.

    `run` names the run under the root; without it, it is Ray's session. `options` are those of
    `memtrace record`: ``rotate="30s"`` is ``--rotate 30s``, ``redact=True`` is ``--redact``.
    `RuntimeError` where the cluster is recorded already.
    """
    return _start(root, run, address, program, _words(options))


def _start(
    root: str, run: str | None, address: str | None, program: str, words: list[str]
) -> Recording:
    _connect(address)
    _controller.carry_along()
    plan = _controller.Plan(_placed(root), run or _session(), program, words)
    actor = ray.remote(_controller.Controller).options(
        name=_controller.NAME,
        namespace=_controller.NAME,
        lifetime="detached",
        num_cpus=0,
        # On the head: a cluster that loses it is lost itself.
        resources={"node:__internal_head__": 0.001},
        # Where it is lost, another takes over what runs.
        max_restarts=-1,
        max_concurrency=4,
    )
    try:
        controller = actor.remote(plan)
    except ValueError as error:
        raise RuntimeError(
            "this cluster is recorded already; end that by: python3 -m memtrace.ray stop"
        ) from error
    return Recording(plan.root, plan.run, ray.get(controller.begin.remote()))


def status(*, address: str | None = None) -> dict[str, Any] | None:
    """The root, the run, and what the recorder of each node does, also of those that are gone. None
    where nothing records."""
    _connect(address)
    controller = _running()
    if controller is None:
        return None
    told: dict[str, Any] = ray.get(controller.status.remote())
    return told


def stop(*, address: str | None = None, timeout: float = STOP_SECONDS) -> list[dict[str, Any]]:
    """Ends the recorders in order: each closes its recording and carries what is left to the root.
    A node whose state is `closing` then takes longer than `timeout`, and goes on."""
    _connect(address)
    controller = _running()
    if controller is None:
        raise RuntimeError("nothing records this cluster")
    patience = timeout + _controller.STOP_SLACK_SECONDS
    told: list[dict[str, Any]] = ray.get(controller.stop.remote(timeout), timeout=patience)
    ray.kill(controller)
    return told


@contextlib.contextmanager
def record(
    root: str,
    *,
    run: str | None = None,
    address: str | None = None,
    program: str = "memtrace",
    timeout: float = STOP_SECONDS,
    **options: object,
) -> Iterator[Recording]:
    """Records the cluster while the block runs; see `start`."""
    begun = start(root, run=run, address=address, program=program, **options)
    try:
        yield begun
    finally:
        # What the block raises says more than why the recorders could not be asked.
        try:
            stop(timeout=timeout)
        except Exception as error:
            print(f"memtrace: failed to end the recording: {error}", file=sys.stderr)


def _connect(address: str | None) -> None:
    if not ray.is_initialized():
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")


def _running() -> Any:
    try:
        return ray.get_actor(_controller.NAME, namespace=_controller.NAME)
    except ValueError:
        return None


def _placed(root: str) -> str:
    """A root as every node understands it: a path is that of this process's directory."""
    root = os.fspath(root)
    return root if "://" in root else os.path.abspath(root)


def _session() -> str:
    """The name of Ray's session, the same on all its nodes."""
    from ray._private.worker import global_worker

    return str(global_worker.node.session_name)


def _words(options: dict[str, object]) -> list[str]:
    """Options as a shell would give them."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words
