"""multiprocessing: a worker of a pool that is started again once it has ended."""

import multiprocessing
import os
import sys
import threading

import causes

CAUSE = sys.argv[1]


def kill() -> None:
    os.kill(causes.asked("victim"), 9)


if __name__ == "__main__":
    causes.say("driver", os.getpid())
    if CAUSE == "import_error":
        import no_such_module  # noqa: F401
    context = multiprocessing.get_context("spawn")
    codes = []
    for _ in range(2):
        worker = context.Process(target=causes.end_by, args=(CAUSE,))
        worker.start()
        if CAUSE == "parent" and not codes:
            threading.Thread(target=kill).start()
        worker.join()
        codes.append(worker.exitcode)
    print("exit codes", codes)
    sys.exit(1 if CAUSE == "memory_error" else 0)
