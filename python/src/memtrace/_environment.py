"""What memtrace.pth imports at the start of an interpreter, if MEMTRACE_INSTRUMENT is set.

Nothing may go out of here: the program has not even begun.
"""

import os

ENVIRONMENT = "MEMTRACE_INSTRUMENT"


def activate() -> None:
    """Instruments what the environment names, when somebody records."""
    try:
        from . import _recorder
        from ._instrument import instrument

        if _recorder.active is not None:
            names = os.environ.get(ENVIRONMENT, "").split(",")
            instrument(*(name.strip() for name in names if name.strip()))
    except Exception as error:
        import sys

        print(f"memtrace: {ENVIRONMENT} has no effect: {error!r}", file=sys.stderr)


activate()
