"""torchrun: the second of two ranks ends; the agent stops the other one."""

import os
import sys
import time

import causes

CAUSE = sys.argv[1]
if CAUSE == "import_error":
    import no_such_module  # noqa: F401
if os.environ["RANK"] == "1":
    causes.say("driver", os.getppid())
    causes.end_by(CAUSE)
elif CAUSE != "clean":
    time.sleep(causes.WAIT_S)
