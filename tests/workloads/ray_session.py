"""A Ray session on this machine: two actors, an object of 256 MiB, and a task. Says who is who
once all three of them have read the object, holds that for a while, or until the file `enough` is
in its directory, and ends."""

import json
import os
import sys
import time

import numpy as np
import ray
from ray._private import worker as ray_worker

OBJECT_BYTES = 256 << 20
HOLD_SECONDS = float(sys.argv[1])
PLACE = sys.argv[2]
ENOUGH = os.path.join(PLACE, "enough")


def touch(block: np.ndarray) -> int:
    return int(block[::4096].sum())


@ray.remote(num_cpus=1)
class Trainer:
    def read(self, block: np.ndarray) -> int:
        self.block = block
        touch(block)
        return os.getpid()


@ray.remote(num_cpus=1)
class Rollout:
    def read(self, block: np.ndarray) -> int:
        self.block = block
        touch(block)
        return os.getpid()


@ray.remote(num_cpus=1)
def reader(block: np.ndarray, said: str) -> int:
    touch(block)
    with open(said, "w") as file:
        file.write(str(os.getpid()))
    until = time.monotonic() + HOLD_SECONDS
    while not os.path.exists(ENOUGH) and time.monotonic() < until:
        time.sleep(0.05)
    return os.getpid()


def wait_for(path: str) -> int:
    while True:
        try:
            with open(path) as file:
                text = file.read()
            if text:
                return int(text)
        except FileNotFoundError:
            pass
        time.sleep(0.05)


def main() -> None:
    ray.init(
        num_cpus=4,
        object_store_memory=600 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    block = ray.put(np.ones(OBJECT_BYTES, dtype=np.uint8))
    trainer, rollout = Trainer.remote(), Rollout.remote()
    roles = {os.getpid(): "driver"}
    roles[ray.get(trainer.read.remote(block))] = "actor Trainer"
    roles[ray.get(rollout.read.remote(block))] = "actor Rollout"
    said = os.path.join(PLACE, f"reader-{os.getpid()}")
    held = reader.remote(block, said)
    roles[wait_for(said)] = "task reader"
    for kind, processes in ray_worker._global_node.all_processes.items():
        for process in processes:
            roles[process.process.pid] = kind
    truth = {
        "object_bytes": OBJECT_BYTES,
        "session": ray_worker._global_node.get_session_dir_path(),
        "roles": roles,
    }
    print(json.dumps(truth), flush=True)
    ray.get(held)


main()
