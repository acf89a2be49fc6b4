"""Ray: an actor whose driver sees it fail."""

import os
import sys
import threading
import time

import causes
import ray

CAUSE = sys.argv[1]


@ray.remote(max_restarts=0, max_task_retries=0)
class Worker:
    def end(self) -> str:
        return causes.end_by(CAUSE)


def kill() -> None:
    os.kill(causes.asked("victim"), 9)


causes.say("driver", os.getpid())
settings = {"memory_usage_threshold": float(os.environ.get("ENDS_THRESHOLD", "0.95"))}
settings["memory_monitor_refresh_ms"] = 100
ray.init(
    num_cpus=1,
    include_dashboard=False,
    object_store_memory=100 << 20,
    _system_config=settings,
    _temp_dir=os.environ.get("ENDS_RAY"),
)
if CAUSE == "import_error":
    import no_such_module  # noqa: F401
worker = Worker.remote()
if CAUSE == "parent":
    threading.Thread(target=kill).start()
try:
    print(ray.get(worker.end.remote(), timeout=90))
except ray.exceptions.RayError as error:
    print(type(error).__name__, error)
    time.sleep(1)
    if CAUSE == "memory_error":
        raise
    # The job goes on with another one.
    print(ray.get(Worker.remote().end.remote(), timeout=90))
ray.shutdown()
