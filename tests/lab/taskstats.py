"""What the kernel accounts to a thread when it ends (taskstats): above all the high-water mark of
its address space, which neither a poll nor a BPF program has to catch.

Needs root in the initial namespaces, and CONFIG_TASKSTATS with CONFIG_TASK_XACCT.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NETLINK_GENERIC = 16
GENL_ID_CTRL = 16
CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 3, 1, 2
TASKSTATS_CMD_GET, REGISTER_CPUMASK = 1, 3
TYPE_PID, TYPE_STATS, TYPE_AGGR_PID = 1, 3, 4
NLM_F_REQUEST = 1

NETLINK_HEADER = struct.Struct("=IHHII")
GENERIC_HEADER = struct.Struct("=BBH")
ATTRIBUTE = struct.Struct("=HH")

# From ac_pid to others in `struct taskstats`. What stands before ac_pid has grown between versions,
# so its place is looked for.
PID_TO_BTIME = 8
PID_TO_HIWATER = 72

BUFFER_BYTES = 16 << 20


class Ended(NamedTuple):
    """A thread that ended, when it began, in seconds since 1970, and the highest RSS of its address
    space, in whole KiB."""

    tid: int
    began_s: int
    hiwater_kib: int


class TaskStats:
    """The ends of threads on all CPUs, subscribed to.

    Raises OSError where the kernel does not offer them or the caller may not listen.
    """

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)
        self.socket.bind((0, 0))
        self.socket.settimeout(2)
        name = attribute(CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0")
        self.send(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, name)
        reply = self.socket.recv(1 << 16)
        told = dict(attributes(reply[NETLINK_HEADER.size + GENERIC_HEADER.size :]))
        if CTRL_ATTR_FAMILY_ID not in told:
            raise OSError("the kernel has no taskstats")
        self.family = struct.unpack_from("=H", told[CTRL_ATTR_FAMILY_ID])[0]
        with open("/sys/devices/system/cpu/possible") as file:
            cpus = file.read().strip().encode() + b"\0"
        self.send(self.family, TASKSTATS_CMD_GET, attribute(REGISTER_CPUMASK, cpus))
        self.socket.settimeout(0.1)
        self.pid_offset: int | None = None
        self.overruns = 0

    def send(self, family: int, command: int, body: bytes) -> None:
        """Sends one request."""
        length = NETLINK_HEADER.size + GENERIC_HEADER.size + len(body)
        header = NETLINK_HEADER.pack(length, family, NLM_F_REQUEST, 0, os.getpid())
        self.socket.send(header + GENERIC_HEADER.pack(command, 1, 0) + body)

    def receive(self) -> Iterator[Ended]:
        """The next ends; none when nothing came for a tenth of a second."""
        try:
            message = self.socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            self.overruns += 1
            return
        _, kind, *_ = NETLINK_HEADER.unpack_from(message)
        if kind != self.family:
            return
        for outer, body in attributes(message[NETLINK_HEADER.size + GENERIC_HEADER.size :]):
            if outer == TYPE_AGGR_PID:
                inner = dict(attributes(body))
                tid = struct.unpack_from("=I", inner[TYPE_PID])[0]
                ended = self.decoded(inner[TYPE_STATS], tid)
                if ended:
                    yield ended

    def decoded(self, stats: bytes, tid: int) -> Ended | None:
        """What `struct taskstats` says; None until the place of the figures is known."""
        if self.pid_offset is None:
            # Small numbers stand in other fields, too.
            places = [
                place
                for place in range(80, len(stats) - 4, 4)
                if struct.unpack_from("=I", stats, place)[0] == tid
            ]
            if len(places) != 1 or tid < 1_000:
                return None
            self.pid_offset = places[0]
        began = struct.unpack_from("=I", stats, self.pid_offset + PID_TO_BTIME)[0]
        hiwater = struct.unpack_from("=Q", stats, self.pid_offset + PID_TO_HIWATER)[0]
        return Ended(tid, began, hiwater)

    def close(self) -> None:
        """Ends the subscription."""
        self.socket.close()


def attribute(kind: int, body: bytes) -> bytes:
    """One netlink attribute, padded."""
    length = ATTRIBUTE.size + len(body)
    return ATTRIBUTE.pack(length, kind) + body + bytes(-length % 4)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Netlink attributes, as far as they are whole."""
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[at + ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
