"""What the kept recordings are of: a process and two children, which hold what is told in MiB.

Writes truth.json: the peak of each by getrusage, in bytes, the first one last.
"""

import json
import os
import resource
import sys
import time

PEAKS = []
for mib in (32, 96):
    child = os.spawnv(
        os.P_NOWAIT,
        sys.executable,
        [sys.executable, "-S", "-c", f"import time; held = b'x' * ({mib} << 20); time.sleep(1)"],
    )
    _, _, usage = os.wait4(child, 0)
    PEAKS.append(usage.ru_maxrss * 1024)
held = b"x" * (64 << 20)
time.sleep(1)
PEAKS.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
with open("truth.json", "w") as truth:
    json.dump({"peaks_bytes": PEAKS}, truth)
