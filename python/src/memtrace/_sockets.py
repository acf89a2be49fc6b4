"""Where recorders take marks, and which of them run.

crates/host/src/mark_sockets.rs decides that.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

_SYSTEM = "/run/memtrace"
# What the name of the link to a recording has behind that of its socket.
_RECORDING = ".recording"


def places() -> list[str]:
    """The directories of the sockets: root's, and this user's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = f"{runtime}/memtrace" if runtime else f"{tempfile.gettempdir()}/memtrace-{os.geteuid()}"
    return [_SYSTEM, own]


def recording_at(path: str) -> str | None:
    """The directory of the recording whose recorder listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
            return os.readlink(path + _RECORDING)
        except OSError:
            return None


def recordings() -> list[str]:
    """The directories of this user's recordings that run."""
    behind = os.environ.get("SUDO_UID", "")
    user = os.geteuid() or (int(behind) if behind.isdigit() else 0)
    found = []
    for link in (link for place in places() for link in Path(place).glob(f"*.sock{_RECORDING}")):
        path = str(link)[: -len(_RECORDING)]
        try:
            is_own = os.stat(path).st_uid == user
        except OSError:
            continue
        if is_own and (directory := recording_at(path)) is not None:
            found.append(directory)
    return found
