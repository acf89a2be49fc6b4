"""The live view in a notebook: what ``memtrace top`` shows of a running recording, refreshed."""

from __future__ import annotations

import html
import os
import subprocess
import threading
from typing import Any

from . import _program

# One look takes no longer.
_PATIENCE_SECONDS = 30.0
# How `memtrace top` says that no more will come.
_OVER = "recording closed"


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
        while not self._stopped.is_set():
            shown, is_over = self._look()
            self._handle.update(_Screen(shown))
            if is_over:
                break
            self._stopped.wait(self._every)

    def _look(self) -> tuple[str, bool]:
        """One screen, and whether it is the last."""
        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_SECONDS,
                env={**os.environ, "COLUMNS": "120"},
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"memtrace top failed: {error}", True
        shown = done.stdout if done.returncode == 0 else done.stderr
        text = shown.decode(errors="replace")
        first = text.split("\n", 1)[0].rstrip()
        return text, done.returncode != 0 or first.endswith(_OVER)


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

    `path` is the recording, by default the running one; `view` is ``"tree"``, ``"roles"``,
    ``"processes"``, ``"ledger"``, ``"gpus"`` or ``"phases"``. It ends with the recording.
    `FileNotFoundError` without the program ``memtrace``.
    """
    if not every > 0:
        raise ValueError("the time between two looks must be more than zero")
    from IPython.display import display

    where = [] if path is None else [f"--recording={os.fspath(path)}"]
    command = [_program.path(), "top", "--once", f"--view={view}", *where]
    handle = display(_Screen("memtrace top ..."), display_id=True)  # type: ignore[no-untyped-call]
    return Live(command, every, handle)
