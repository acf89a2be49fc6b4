"""The live view in a notebook: what ``memtrace top`` shows of a running recording, refreshed."""

from __future__ import annotations

import html
import os
import subprocess
import threading
import time
from typing import Any

from . import _program, _recorder, _sockets

# One look takes no longer.
_PATIENCE_SECONDS = 30.0
# How `memtrace top` says that no more will come, as the last words of its title.
_OVER = ("recording closed", "recorder gone")
# Each look is a process that reads the recording from its beginning: it rests this much longer.
_REST = 9


class Live:
    """A table in a notebook that is refreshed until `stop`, or until the recording is closed."""

    def __init__(self, command: list[str], every: float, handle: Any) -> None:
        self._command, self._every, self._handle = command, every, handle
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memtrace live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refreshes it no more; what it shows stays."""
        self._stopped.set()

    def join(self, seconds: float | None = None) -> bool:
        """Waits until it is refreshed no more, and says whether that is so."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        before = ""
        is_over = False
        while not is_over:
            begin = time.monotonic()
            shown, is_over = self._look(before)
            if self._stopped.is_set():
                break
            self._handle.update(_Screen(shown))
            before = shown
            is_over |= self._stopped.wait(max(self._every, _REST * (time.monotonic() - begin)))

    def _look(self, before: str) -> tuple[str, bool]:
        """One screen, and whether it is the last. One that fails leaves what was shown before."""
        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{before}memtrace top failed: {error}", True
        if done.returncode != 0:
            return before + done.stderr.decode(errors="replace"), True
        text = done.stdout.decode(errors="replace")
        title = text.split("\n", 1)[0].rstrip()
        return text, title.rpartition("  ")[2].startswith(_OVER)


class _Screen:
    """The text of a screen, as notebooks show one."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


def live(
    path: str | os.PathLike[str] | None = None, *, every: float = 1.0, view: str = "processes"
) -> Live:
    """Shows in a notebook who holds memory now, as ``memtrace top`` does, each second anew::

        view = memtrace.live()
        ...
        view.stop()

    `path` is the recording, by default the one that runs now; `view` is ``"tree"``, ``"roles"``,
    ``"processes"``, ``"ledger"``, ``"gpus"`` or ``"phases"``. It ends with the recording, and comes
    less often than `every` where a look takes long. `FileNotFoundError` without the program
    ``memtrace``, `RuntimeError` if several recordings run and none is named.
    """
    if not every > 0:
        raise ValueError("the time between two looks must be more than zero")
    from IPython.display import display

    command = [_program.path(), "top", "--once", f"--view={view}"]
    recording = _running() if path is None else os.fspath(path)
    if recording is not None:
        command.append(f"--recording={recording}")
    handle = display(_Screen("memtrace top ..."), display_id=True)  # type: ignore[no-untyped-call]
    return Live(command, every, handle)


def _running() -> str | None:
    """The recording that runs: that of this process, else the only one of this user."""
    own = os.environ.get(_recorder.ENVIRONMENT)
    if own and (recording := _sockets.recording_at(own)) is not None:
        return recording
    running = _sockets.recordings()
    if len(running) > 1:
        names = ", ".join(sorted(running))
        raise RuntimeError(f"{len(running)} recordings are running; name one as `path`: {names}")
    # Where there is none, `memtrace top` says so.
    return running[0] if running else None
