"""A driver on the first of three hosts: does what lines of JSON say, and tells what came of it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import memtrace.ray
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_cluster import Holder

held: list[Any] = []


def hold(host: str, mib: int) -> str:
    (node,) = (
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and node["NodeManagerHostname"] == host
    )
    at = NodeAffinitySchedulingStrategy(node, soft=False)
    holder = Holder.options(scheduling_strategy=at, num_cpus=0).remote()
    ray.get(holder.hold.remote(mib))
    held.append(holder)
    return host


def main() -> None:
    # Ray writes what happens in the cluster to the standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    print(json.dumps("connected"), file=answers, flush=True)
    for line in sys.stdin:
        name, words, options = json.loads(line)
        functions: dict[str, Any] = {
            "hold": hold,
            "start": memtrace.ray.start,
            "status": memtrace.ray.status,
            "stop": memtrace.ray.stop,
        }
        print(json.dumps(functions[name](*words, **options)), file=answers, flush=True)


if __name__ == "__main__":
    main()
