"""The way to the recorder: one datagram per message, never waiting, never failing.

The protocol is docs/marks.md. `active` is the recorder of this process, or None when
no recorder runs: callers look at it first, and that look is all that a mark costs then.
"""

from __future__ import annotations

import atexit
import errno
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from . import _attributes

ENVIRONMENT = "MEMTRACE_SOCKET"
MAX_MESSAGE_BYTES = 32_768
# What a message holds beside its attributes: a name of 256 bytes, escaped, and numbers.
_MAX_ATTRIBUTES_BYTES = MAX_MESSAGE_BYTES - 2_048
# How long the end of a process may wait to tell what it dropped.
_LAST_WORDS_MS = 20

# Where marks of the kernel and of this process meet. macOS has no CLOCK_BOOTTIME; there
# CLOCK_MONOTONIC goes on during sleep.
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_ns() -> int:
    """The recording's clock."""
    return time.clock_gettime_ns(_CLOCK)


class Recorder:
    """A connection to the socket of a recording."""

    __slots__ = ("_connection", "_dropped", "_has_last_words", "_lock", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        # The socket, and by what to know that its descriptor is still ours.
        self._connection: tuple[socket.socket, object] | None = None
        self._dropped = 0
        self._has_last_words = False
        # Reentrant, because a signal handler or a finalizer may mark as well.
        self._lock = threading.RLock()

    def tell(
        self,
        kind: str,
        name: Any,
        boot: int,
        span: int | None = None,
        attrs: Mapping[str, Any] | None = None,
        asks: bool = False,
    ) -> bool:
        """Sends one message. False when it was dropped, which the next one will say.

        With `asks`, the recorder keeps what the descendants hold until the span ends."""
        dropped = 0
        try:
            message = (
                f'{{"v":1,"kind":"{kind}","name":{_attributes.name_json(name)},"boot_ns":{boot}'
            )
            if span is not None:
                message += f',"span":{span}'
            if asks:
                message += ',"descendants":true'
            if attrs:
                json = _attributes.attributes_json(attrs, _MAX_ATTRIBUTES_BYTES)
                message += f',"attrs":{json}'
            if self._dropped:
                dropped = self._take_dropped()
                message += f',"dropped":{dropped}'
            if self._send(f"{message}}}".encode()):
                return True
        except Exception:
            # Whatever a program put into a mark is no reason for it to fail.
            pass
        self._add_dropped(dropped + 1)
        return False

    def _send(self, message: bytes) -> bool:
        connection = self._connected()
        if connection is None:
            return False
        try:
            connection.send(message)
        except OSError as error:
            if error.errno in _GONE:
                give_up(self)
            return False
        return True

    def _connected(self) -> socket.socket | None:
        """The socket, if its descriptor is still ours.

        A program that turns itself into a daemon closes every descriptor it finds, and
        the number may be somebody else's connection by now.
        """
        connection = self._connection
        if connection is not None and _is_open(*connection):
            return connection[0]
        with self._lock:
            # Another thread may have been faster.
            if self._connection is connection:
                if connection is not None:
                    connection[0].detach()
                self._connection = self._connect()
            return self._connection[0] if self._connection else None

    def _connect(self) -> tuple[socket.socket, object] | None:
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:
            # No descriptor left, most likely; there may be one later.
            return None
        try:
            connection.setblocking(False)
            connection.connect(self.path)
        except OSError:
            connection.close()
            give_up(self)
            return None
        return connection, _identity(connection)

    def _take_dropped(self) -> int:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
            return dropped

    def _add_dropped(self, count: int) -> None:
        with self._lock:
            self._dropped += count
            if self._has_last_words or active is not self:
                return
            self._has_last_words = True
        atexit.register(self.say_last_words)
        # Children of multiprocessing leave through os._exit, past atexit.
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.say_last_words, exitpriority=0)

    def say_last_words(self) -> None:
        """Tells what was dropped and is not told yet, at the end of the process."""
        try:
            if not self._dropped or active is not self:
                return
            connection = self._connected()
            if connection is not None:
                poll = select.poll()
                poll.register(connection, select.POLLOUT)
                poll.poll(_LAST_WORDS_MS)
                self.tell("instant", "memtrace.dropped", boot_ns())
        except Exception:
            pass

    def forget_parent(self) -> None:
        """In the child of a fork: what the parent dropped is the parent's to tell."""
        self._lock = threading.RLock()
        self._dropped = 0
        self._has_last_words = False
        self.close()

    def close(self) -> None:
        """Gives the socket back. A later message connects anew."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if _is_open(*connection):
                connection[0].close()
            else:
                connection[0].detach()


# Of <asm-generic/socket.h>: a number that no other socket has. Half the cost of fstat.
_SO_COOKIE = 57


def _identity(connection: socket.socket) -> object:
    """What tells the socket from whatever else its descriptor may stand for later."""
    if sys.platform == "linux":
        try:
            return connection.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
        except OSError:
            # Not a socket any more; or one whose kernel gives no cookies.
            pass
    return os.fstat(connection.fileno()).st_ino


def _is_open(connection: socket.socket, identity: object) -> bool:
    """Whether the socket's descriptor is still the socket."""
    try:
        return _identity(connection) == identity
    except OSError:
        return False


# The socket of a recorder that has ended, or that was never there.
_GONE = frozenset(
    (
        errno.ECONNREFUSED,
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTCONN,
        errno.ECONNRESET,
        errno.EPIPE,
    )
)


def _from_environment() -> Recorder | None:
    path = os.environ.get(ENVIRONMENT)
    return Recorder(path) if path and hasattr(socket, "AF_UNIX") else None


def give_up(recorder: Recorder) -> None:
    """The recorder is gone: from now on a mark costs nothing."""
    global active
    if active is recorder:
        active = None


def _after_fork_in_child() -> None:
    if active is not None:
        active.forget_parent()


active: Recorder | None = _from_environment()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
