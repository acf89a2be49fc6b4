"""A tree of processes that holds memory in ways that its number chooses: copies after a fork,
shared memory, files of a tmpfs, huge pages, pinned pages, page tables, sockets; late or early."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import socket
import sys
import time
from collections.abc import Callable

MIB = 1 << 20
PAGE = mmap.PAGESIZE
# A mapping of which little is touched takes no commit charge.
NORESERVE, HUGETLB = 0x4000, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)
# What is held stays until the process ends.
KEPT: list[object] = []


def touch(area: mmap.mmap, size: int) -> None:
    for place in range(0, size, PAGE):
        area[place] = 1


def anonymous(size: int) -> None:
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touch(area, size)
    KEPT.append(area)


def shared(size: int) -> mmap.mmap:
    area = mmap.mmap(-1, size)
    KEPT.append(area)
    return area


def tmpfs(size: int) -> None:
    file = os.memfd_create("staged")
    for _ in range(size // MIB):
        os.write(file, bytes(MIB))
    KEPT.append(file)


def huge(size: int) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | HUGETLB
    area = mmap.mmap(-1, size, flags=flags)
    for place in range(0, size, 2 * MIB):
        area[place] = 1
    KEPT.append(area)


def page_tables(size: int) -> None:
    length = size // PAGE * 2 * MIB
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    area = mmap.mmap(-1, length, flags=flags, prot=mmap.PROT_READ)
    # A page that is only read is the zero page: what it takes is the table.
    for place in range(0, length, 2 * MIB):
        area[place]
    KEPT.append(area)


def pinned(size: int) -> None:
    """Buffers of io_uring that are mapped nowhere any more."""

    class Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    ring = LIBC.syscall(425, 4, ctypes.byref(ctypes.create_string_buffer(120)))
    if ring < 0:
        return anonymous(size)
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    area = LIBC.mmap(None, size, 3, 0x22, -1, 0)
    ctypes.memset(area, 1, size)
    buffers = Iovec(area, size)
    if LIBC.syscall(427, ring, 0, ctypes.byref(buffers), 1) == 0:
        LIBC.munmap(ctypes.c_void_p(area), ctypes.c_size_t(size))
    KEPT.append(ring)


def sockets(size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    for _ in range(max(size // (4 * MIB), 1)):
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        sender.setblocking(False)
        try:
            while sender.send(bytes(1 << 16)):
                pass
        except BlockingIOError:
            pass
        KEPT.extend((sender, receiver))


WAYS: list[Callable[[int], None]] = [anonymous, tmpfs, page_tables, pinned, sockets]


def child(dice: random.Random, base: mmap.mmap, common: mmap.mmap, each: int, life: float) -> None:
    """Copies a part of what it inherited, touches what is shared, holds something of its own."""
    begin = time.monotonic()
    time.sleep(dice.random() * life / 3)
    for place in range(0, int(len(base) * dice.random()), PAGE):
        if dice.random() < 0.5:
            base[place] = 2
    for place in range(0, int(len(common) * dice.random()), PAGE):
        common[place] = 1
    anonymous(int(each * (0.2 + dice.random())) // PAGE * PAGE + PAGE)
    if dice.random() < 0.2:
        return
    time.sleep(max(0, begin + life - time.monotonic()))


def main() -> None:
    seed = int(sys.argv[1])
    dice = random.Random(seed)
    count = [1, 3, 8, 20, 60, 200, 1000][seed % 7]
    each = min(32 * MIB, 320 * MIB // count)
    base = mmap.mmap(-1, min(64 * MIB, 512 * MIB // count), flags=mmap.MAP_PRIVATE)
    touch(base, len(base))
    common = shared(dice.randrange(1, 64) * MIB)
    for way in dice.sample(WAYS, 2):
        way(dice.randrange(8, 64) * MIB)
    if len(sys.argv) > 2 and dice.random() < 0.5:
        huge(dice.randrange(4, 16) * 2 * MIB)
    life = 2.0 + count / 250
    children = []
    for _ in range(count):
        number = dice.randrange(1 << 30)
        pid = os.fork()
        if pid == 0:
            child(random.Random(number), base, common, each, life)
            os._exit(0)
        children.append(pid)
    time.sleep(life / 2)
    anonymous(dice.randrange(8, 128) * MIB)
    for pid in children:
        os.waitpid(pid, 0)


main()
