"""Dask: a worker of a local cluster, which its nanny starts again."""

import os
import sys
import threading
import time

import causes
from distributed import Client, LocalCluster

CAUSE = sys.argv[1]


def kill() -> None:
    os.kill(causes.asked("victim"), 9)


if __name__ == "__main__":
    causes.say("driver", os.getpid())
    limit = "300MiB" if CAUSE == "monitor" else 0
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, memory_limit=limit, dashboard_address=None
    )
    client = Client(cluster)
    if CAUSE == "import_error":
        import no_such_module  # noqa: F401
    if CAUSE == "parent":
        threading.Thread(target=kill).start()
    try:
        print(client.submit(causes.end_by, CAUSE, retries=0).result(timeout=90))
    except MemoryError:
        raise
    except Exception as error:
        print(type(error).__name__, error)
    time.sleep(2)
    client.close()
    cluster.close()
