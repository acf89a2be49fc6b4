"""A recorder that is started from Python and attached to this process, or to another."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from . import _program, _recorder, _sockets

if TYPE_CHECKING:
    from ._recording.recording import Recording

# In what words it says that it records, and how long it may take until then.
_BEGUN = "recording with"
_START_SECONDS = 20.0
_LOOK_SECONDS = 0.02
# How long it may take to close the recording.
STOP_SECONDS = 120.0


class record:
    """Records this process and all that it starts while a block runs::

        with memtrace.record("run1") as recording:
            train()
        recording.load().peak()

    `path` is the recording's directory (by default ``memtrace record`` chooses it), `pid` another
    process to record, and `options` more words for ``memtrace record``. The block begins when the
    recorder says that it records. Marks and phases of this process go to it, also those of
    processes that the block starts. `FileNotFoundError` without the program ``memtrace``,
    `RuntimeError` with its words where it fails.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        pid: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.path: str | None = None if path is None else os.fspath(path)
        self._is_own = pid in (None, os.getpid())
        # It writes to a file of ours, and has to say there that it records.
        words = (word for word in options if word not in ("-q", "--quiet"))
        self._words = ["--pid", str(pid or os.getpid()), *words]

    def __enter__(self) -> record:
        output = [] if self.path is None else [f"--output={self.path}"]
        command = [_program.path(), "record", *self._words, *output]
        self._log: IO[bytes] = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C ends the block, and the block the recorder.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=self._log, start_new_session=True
        )
        self._wait_until_it_records()
        self._before = _recorder.active, os.environ.get(_recorder.ENVIRONMENT)
        socket = self._socket()
        self._own = _recorder.Recorder(socket) if self._is_own and socket is not None else None
        if self._own is not None:
            _recorder.active = self._own
            os.environ[_recorder.ENVIRONMENT] = self._own.path
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.say_last_words()
            self._own.close()
            _recorder.active, socket = self._before
            os.environ.pop(_recorder.ENVIRONMENT, None)
            if socket is not None:
                os.environ[_recorder.ENVIRONMENT] = socket
        self._process.send_signal(signal.SIGINT)
        with self._log:
            if self._process.wait(STOP_SECONDS) != 0:
                raise RuntimeError(self._says())

    def load(self) -> Recording:
        """The recording, for reading."""
        from ._recording.recording import Recording

        if self.path is None:
            raise FileNotFoundError("the recorder has not begun")
        return Recording(self.path)

    def _wait_until_it_records(self) -> None:
        latest = time.monotonic() + _START_SECONDS
        while _BEGUN not in (says := self._says()):
            if self._process.poll() is not None or time.monotonic() > latest:
                self._process.kill()
                self._process.wait()
                self._log.close()
                raise RuntimeError(says or f"the recorder did not begin in {_START_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
        if self.path is None:
            line = next(line for line in says.splitlines() if _BEGUN in line)
            self.path = line.rpartition(") to ")[2]

    def _says(self) -> str:
        """What it wrote, without moving its place in the file."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace").strip()

    def _socket(self) -> str | None:
        """Where it takes marks."""
        names = (f"{place}/{self._process.pid}.sock" for place in _sockets.places())
        return next(filter(os.path.exists, names), None)
