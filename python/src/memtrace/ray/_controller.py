"""Which nodes of a cluster have a recorder: one detached actor that looks at the list of nodes,
starts a recorder on each that is new, and knows those that are gone."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import _recorder

NAME = "memtrace"
"""Of the actor, and of its namespace: a cluster has one recording at a time."""

_PERIOD_SECONDS = 5.0
_ANSWER_SECONDS = 90.0
STOP_SLACK_SECONDS = 2 * _ANSWER_SECONDS
"""So much longer than the recorders themselves the controller takes to end them."""
_TRIES = 3
_AT_ONCE = 32


class Plan(NamedTuple):
    """What was asked for."""

    root: str
    run: str
    program: str
    words: Sequence[str]
    """Options of `memtrace record` beside those that the launcher gives."""


class OnNode:
    """Does one thing on a node, and ends."""

    def do(self, name: str, *words: Any) -> _recorder.Told:
        """Calls a function of the module of recorders."""
        told: _recorder.Told = getattr(_recorder, name)(*words)
        return told


class _Node(NamedTuple):
    host: str
    tries: int
    is_alive: bool
    last: _recorder.Told


class Controller:
    """The actor."""

    def __init__(self, plan: Plan) -> None:
        carry_along()
        self._plan = plan
        self._nodes: dict[str, _Node] = {}
        self._has_to_end = threading.Event()
        # One look at a time: `begin` and the thread that watches would start a recorder each.
        self._looking = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self) -> list[_recorder.Told]:
        """Starts a recorder on each node that there is."""
        self._look()
        return self._told()

    def status(self) -> dict[str, Any]:
        """Asks each node."""
        self._ask("status")
        plan = self._plan
        return {"root": plan.root, "run": plan.run, "nodes": self._told()}

    def stop(self, timeout: float) -> list[_recorder.Told]:
        """Ends all recorders in order, at the same time, and waits for them."""
        self._has_to_end.set()
        self._ask("stop", timeout, patience=timeout + _ANSWER_SECONDS)
        return self._told()

    def _watch(self) -> None:
        while not self._has_to_end.wait(_PERIOD_SECONDS):
            try:
                self._look()
            except Exception as error:
                print(f"memtrace: failed to look at the nodes: {error!r}", file=sys.stderr)

    def _look(self) -> None:
        with self._looking:
            if self._has_to_end.is_set():
                return
            listed = {node["NodeID"]: node for node in ray.nodes()}
            alive = [node for node, said in listed.items() if said["Alive"]]
            for node, known in self._nodes.items():
                self._nodes[node] = known._replace(is_alive=node in alive)
            for node in alive:
                if node not in self._nodes:
                    name = host_name(listed[node]["NodeManagerHostname"], node, self._taken())
                    self._nodes[node] = _Node(name, 0, True, {"state": "absent"})
            hosts = sorted(self._taken())
            words = ["--root", self._plan.root, "--run", self._plan.run]
            words += ["--expect-hosts", ",".join(hosts), *self._plan.words]
            wanted = [
                node
                for node, known in self._nodes.items()
                if known.is_alive and known.last["state"] == "absent" and known.tries < _TRIES
            ]

            def start(node: str) -> None:
                known = self._nodes[node]
                told = on_node(node, "start", known.host, self._plan.program, words)
                self._nodes[node] = known._replace(last=told, tries=known.tries + 1)

            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(start, wanted))

    def _taken(self) -> set[str]:
        return {known.host for known in self._nodes.values() if known.is_alive}

    def _ask(self, name: str, *words: Any, patience: float = _ANSWER_SECONDS) -> None:
        def ask(node: str) -> None:
            told = on_node(node, name, *words, patience=patience)
            # What said why it failed to start has no more to say.
            if told["state"] != "absent":
                self._nodes[node] = self._nodes[node]._replace(last=told)

        with self._looking, ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(ask, [node for node, known in self._nodes.items() if known.is_alive]))

    def _told(self) -> list[_recorder.Told]:
        return [
            {"node": node, "host": known.host, **known.last}
            | ({} if known.is_alive else {"state": "dead"})
            for node, known in sorted(self._nodes.items(), key=lambda item: item[1].host)
        ]


def on_node(node: str, name: str, *words: Any, patience: float = _ANSWER_SECONDS) -> _recorder.Told:
    """Has a node do one thing, in a worker of its own that takes no CPU from the scheduler.

    A task's worker would stay, idle, for the next task; an actor's goes with it."""
    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    actor = ray.remote(OnNode).options(num_cpus=0, scheduling_strategy=strategy).remote()
    try:
        told: _recorder.Told = ray.get(actor.do.remote(name, node, *words), timeout=patience)
        return told
    except Exception as error:
        # Also what Ray says of a node that has gone meanwhile.
        return {"state": "absent", "says": [str(error).strip()]}
    finally:
        ray.kill(actor)


def host_name(given: str, node: str, taken: set[str]) -> str:
    """What recordings of a node are called: its host's name, as far as a folder may be called so,
    and more where several nodes of a machine have it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", given).lstrip(".-")[:100] or "node"
    return f"{name}-{node[:8]}" if name in taken else name


def carry_along() -> None:
    """Nodes need not have this package: Ray sends the code of these modules with what uses them."""
    for name in (__name__, _recorder.__name__):
        module = sys.modules.get(name)
        if module is not None:
            ray.cloudpickle.register_pickle_by_value(module)
