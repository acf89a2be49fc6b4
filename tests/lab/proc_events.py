"""Forks, execs and exits as the kernel's process connector tells them (netlink, cn_proc).

Every process of the machine is told, in order, also one that lived for a millisecond. Needs root in
the initial namespaces and CONFIG_PROC_EVENTS.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NETLINK_CONNECTOR = 11
CN_IDX_PROC = CN_VAL_PROC = 1
NLMSG_DONE = 3
LISTEN = 1

FORK, EXEC, EXIT = 1, 2, 0x80000000

# nlmsghdr, and cn_msg behind it.
NETLINK_HEADER = struct.Struct("=IHHII")
CONNECTOR_HEADER = struct.Struct("=IIIIHH")
# what, cpu, timestamp_ns; then pid and tgid, in a fork of the parent and then of the child, in an
# exit followed by the status that wait4 gives.
EVENT = struct.Struct("=IIQ")
TWO = struct.Struct("=II")
EXITED = struct.Struct("=III")

# Holds what comes while Python is busy: some 200,000 events.
BUFFER_BYTES = 64 << 20


class Event(NamedTuple):
    """What one thread did. Of a fork, `tid` and `tgid` are the child's."""

    what: int
    boot_ns: int
    tid: int
    tgid: int
    parent_tgid: int = 0
    status: int = 0


class ProcEvents:
    """The connector, subscribed to.

    Raises OSError where the kernel does not offer it or the caller may not listen.
    """

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_CONNECTOR)
        # SO_RCVBUFFORCE, which Python does not name.
        self.socket.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)
        self.socket.bind((0, CN_IDX_PROC))
        data = struct.pack("=I", LISTEN)
        connector = CONNECTOR_HEADER.pack(CN_IDX_PROC, CN_VAL_PROC, 0, 0, len(data), 0)
        length = NETLINK_HEADER.size + len(connector) + len(data)
        header = NETLINK_HEADER.pack(length, NLMSG_DONE, 0, 0, os.getpid())
        self.socket.send(header + connector + data)
        self.socket.settimeout(0.1)
        # How often the kernel found the buffer full: what was missed is not known.
        self.overruns = 0

    def receive(self) -> Iterator[Event]:
        """The next events; none when nothing came for a tenth of a second."""
        try:
            message = self.socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            self.overruns += 1
            return
        at = 0
        while at + NETLINK_HEADER.size <= len(message):
            length = NETLINK_HEADER.unpack_from(message, at)[0]
            event = decoded(message[at + NETLINK_HEADER.size + CONNECTOR_HEADER.size : at + length])
            if event:
                yield event
            at += max((length + 3) & ~3, NETLINK_HEADER.size)

    def close(self) -> None:
        """Ends the subscription."""
        self.socket.close()


def decoded(data: bytes) -> Event | None:
    """A fork, an exec or an exit; None for what is not looked at here."""
    if len(data) < EVENT.size + EXITED.size:
        return None
    what, _, boot_ns = EVENT.unpack_from(data)
    if what == FORK:
        _, parent_tgid = TWO.unpack_from(data, EVENT.size)
        tid, tgid = TWO.unpack_from(data, EVENT.size + TWO.size)
        return Event(FORK, boot_ns, tid, tgid, parent_tgid)
    tid, tgid, status = EXITED.unpack_from(data, EVENT.size)
    if what == EXEC:
        return Event(EXEC, boot_ns, tid, tgid)
    if what == EXIT:
        return Event(EXIT, boot_ns, tid, tgid, status=status)
    return None
