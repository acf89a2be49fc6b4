"""What the Python package costs and measures, told as lines of JSON to the benchmark.

`python_package.py mark COUNT GAP_MS` times COUNT marks, each after GAP_MS of work;
`python_package.py peak BYTES HOLD_MS` measures a section that holds BYTES for HOLD_MS, then
waits for a line, so that the benchmark can read the kernel's figure.
"""

import json
import mmap
import sys
import time

import memtrace

clock = time.perf_counter_ns


def nothing(name, **attrs):
    """As a mark looks to its caller."""


def work(gap_ns):
    """A program that is busy with something else; a machine that sleeps is another matter."""
    end = clock() + gap_ns
    while clock() < end:
        pass


def timed(function, count, gap_ns):
    """How long each call took, the median."""
    taken = []
    for step in range(count):
        if gap_ns:
            work(gap_ns)
        before = clock()
        function("step", n=step)
        taken.append(clock() - before)
    taken.sort()
    return taken[len(taken) // 2]


def together(function, count):
    """How long a call takes of many, the clock not included."""
    before = clock()
    for step in range(count):
        function("step", n=step)
    return (clock() - before) / count


def mark(count, gap_ms):
    gap_ns = gap_ms * 1_000_000
    memtrace.mark("first")
    return {
        "is_recording": memtrace.is_recording(),
        "mark_ns": timed(memtrace.mark, count, gap_ns),
        "nothing_ns": timed(nothing, count, gap_ns),
        "together_ns": together(memtrace.mark, count),
    }


def resident_bytes():
    """Counted page by page: the counters behind VmRSS are kept per CPU and are off a little."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))


def peak(size, hold_ms):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    before = resident_bytes()
    with memtrace.peak("section") as section, mmap.mmap(-1, size, flags) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1
        time.sleep(hold_ms / 1e3)
    return {
        "peak_bytes": section.bytes,
        "source": section.source,
        "counted_bytes": before + size,
        "end_bytes": section.end_bytes,
    }


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    result = {"mark": mark, "peak": peak}[what](*map(int, numbers))
    print(json.dumps(result), flush=True)
    if what == "peak":
        sys.stdin.readline()
