"""What the descendants of this process held in a section: only the recorder knows it.

It is asked when somebody wants to know, and then on a connection of its own, so that no
section costs its program more than the marks of its begin and its end.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, NamedTuple

from . import _recorder

# After the path of the socket for marks.
_SUFFIX = ".ask"
_MAX_ANSWER_BYTES = 4_096


class Answer(NamedTuple):
    """The highest sum of their RSS, and where that is from; or None, and why."""

    bytes: int | None
    source: str


NOBODY = Answer(None, "no recorder runs")
ELSEWHERE = Answer(None, "the section belongs to another process")
NOT_ENDED = Answer(None, "the section has not ended")
NOT_TOLD = Answer(None, "the recorder could not take the marks of the section")
_GONE = Answer(None, "the recorder is gone, or answers no questions")
_BUSY = Answer(None, "the recorder is busy")
_ODD = Answer(None, "this version does not know the recorder's answer")
_CLOSED = Answer(None, "the recorder did not answer: it ended, or does not know this process")


def ask(recorder: _recorder.Recorder, span: int, timeout: float) -> Answer:
    """Asks for one section of this process; never longer than `timeout`, in seconds."""
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(timeout, 0))
            connection.connect(recorder.path + _SUFFIX)
            connection.sendall(f'{{"v":1,"ask":"descendants_peak","span":{span}}}\n'.encode())
            return _read(_line(connection, deadline))
    except (TimeoutError, socket.timeout):
        return Answer(None, f"the recorder did not answer within {timeout:g} s")
    except BlockingIOError:
        return _BUSY
    except OSError:
        return _GONE


def _line(connection: socket.socket, deadline: float) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _MAX_ANSWER_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout
        connection.settimeout(left)
        part = connection.recv(_MAX_ANSWER_BYTES)
        if not part:
            break
        line += part
    return line


def _read(line: bytes) -> Answer:
    if not line:
        return _CLOSED
    try:
        answer: Any = json.loads(line)
    except ValueError:
        return _ODD
    if not isinstance(answer, dict):
        return _ODD
    figure, source, reason = (answer.get(name) for name in ("bytes", "source", "reason"))
    if type(figure) is int and isinstance(source, str):
        return Answer(figure, source)
    return Answer(None, reason) if isinstance(reason, str) else _ODD
