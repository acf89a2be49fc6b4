"""What was seen held against what was recorded. A check gives rows of one form: what, what was
asked for, what was found, and whether that will do."""

from __future__ import annotations

import bisect
import os
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from memory import Charged
from recording import Held, Recording, Row
from watch import Process, Watch

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")

# What the figures of taskstats can be off by: since Linux 6.2 each of the three counters that RSS
# is the sum of holds back up to a batch of pages on each CPU, and taskstats does not add these up.
CPUS = os.cpu_count() or 1
TASKSTATS_ERROR = 3 * max(32, 2 * CPUS) * CPUS * PAGE

# What the memory controller lags by: it adds up what CPUs keep for themselves only from time
# to time.
CHARGE_ERROR = 2 * MIB
# Between two snapshots a process can move by this part of its RSS before a row says so
# (docs/concepts.md); a busy machine has them further apart.
DRIFT_PART = 128

# What stands for so long is to be known, where it is not little; a change is looked for so often.
STANDS_S, LOOKS_S = 1.0, 0.6
LARGE = 512 * MIB

# A sum over many processes is no instant: each is read after the other. Where it moves by more than
# this from one look to the next, two tracers need not agree.
AT_REST = 0.01


class Finding(NamedTuple):
    """A row of the table."""

    what: str
    asked: str
    found: str
    verdict: Literal["ok", "MISSED", "unknown"]


def verdict(is_met: bool) -> Literal["ok", "MISSED"]:
    """The word for it."""
    return "ok" if is_met else "MISSED"


def members(watch: Watch, recording: Recording) -> list[Process]:
    """Who belonged to the tree while it was recorded."""
    begin, end = recording.span
    return [
        each
        for each in watch.members()
        if each.start_ns < end and (each.end_ns is None or each.end_ns > begin)
    ]


def has_ended(process: Process, recording: Recording) -> bool:
    """Whether a process ended while it was recorded."""
    return process.end_ns is not None and process.end_ns < recording.span[1]


def matched(watch: Watch, recording: Recording) -> list[tuple[Process, Row]]:
    """Each watched process with its row. Ids are used again, so both go by time."""
    rows: dict[int, list[Row]] = {}
    for row in sorted(recording.processes, key=lambda row: row["start_boot_ns"]):
        rows.setdefault(row["tgid"], []).append(row)
    pairs = []
    for process in members(watch, recording):
        if rows.get(process.tgid):
            pairs.append((process, rows[process.tgid].pop(0)))
    return pairs


def processes(watch: Watch, recording: Recording) -> Finding:
    """Nobody is missing, and nobody is there who did not belong to it."""
    seen = Counter(process.tgid for process in members(watch, recording))
    told = Counter(row["tgid"] for row in recording.processes)
    missing, more = seen - told, told - seen
    found = f"{told.total()} of {seen.total()}"
    if missing:
        found += f", without {some(missing)}"
    if more:
        found += f", and {some(more)} that the kernel's events do not know"
    if not watch.is_complete():
        return Finding("processes", "all", f"{found}; the kernel dropped events", "unknown")
    return Finding("processes", "all, and no others", found, verdict(not missing and not more))


def some(tgids: Counter[int]) -> str:
    """A few of many."""
    first = ", ".join(map(str, sorted(tgids)[:5]))
    return first if len(tgids) <= 5 else f"{first} and {len(tgids) - 5} more"


def endings(watch: Watch, recording: Recording) -> Finding:
    """Exit codes and signals as wait4 gives them."""
    ended = [pair for pair in matched(watch, recording) if has_ended(pair[0], recording)]
    wrong = [
        str(process.tgid)
        for process, row in ended
        if (row["exit_code"], row["exit_signal"]) != code_and_signal(process.status or 0)
    ]
    found = f"{len(ended) - len(wrong)} of {len(ended)}"
    found += f", not of {', '.join(wrong[:5])}" if wrong else ""
    return Finding("how they ended", "as the kernel says", found, verdict(not wrong))


def code_and_signal(status: int) -> tuple[int | None, int | None]:
    """What a status of wait4 says."""
    return (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (status >> 8, None)


def peaks(watch: Watch, recording: Recording) -> Finding:
    """Each peak within the bound that stands beside it, of the kernel's high-water mark; of
    processes with several images, which the kernel keeps for the last one only, not below it."""
    known, wrong, worst = 0, [], 0
    for process, row in matched(watch, recording):
        peak = row["peak_rss_bytes"]
        bound = (row["peak_error_bytes"] or 0) + TASKSTATS_ERROR
        polls = [held for time, held in process.polls if time < recording.span[1]]
        highest = max((held.hwm_bytes for held in polls), default=0)
        truth = process.hiwater_bytes if has_ended(process, recording) else None
        if peak is None or (truth is None and not highest):
            continue
        known += 1
        above = peak - truth if truth is not None and process.execs <= 1 else 0
        below = max(truth or 0, highest) - peak
        worst = max(worst, above, below)
        if above > bound or below > bound:
            name = (row["cmdline"] or row["comm"])[:40]
            wrong.append(
                f"{process.tgid} {name} {peak / MIB:.1f} for {(truth or highest) / MIB:.1f} MiB"
            )
    found = f"{known - len(wrong)} of {known}, at most {worst >> 10} KiB off"
    found += f"; not {'; '.join(wrong[:3])}" if wrong else ""
    return Finding("peaks", "within their bound", found, verdict(known > 0 and not wrong))


def sums(watch: Watch, recording: Recording) -> Finding:
    """The sum of RSS, wherever it stood still for as long as a look at all processes takes."""
    curve = recording.rss_of_tree
    times = [time for time, _ in curve]
    begin, end = recording.span
    polls = [poll for poll in watch.polls if begin <= poll.begin_ns and poll.end_ns <= end]
    count, worst = 0, (0.0, "")
    for before, poll, after in zip(polls, polls[1:], polls[2:]):
        first = bisect.bisect_right(times, before.begin_ns) - 1
        last = bisect.bisect_right(times, after.end_ns)
        told = [rss for _, rss in curve[max(first, 0) : last]]
        three = [each.rss_bytes for each in (before, poll, after)]
        is_at_rest = min(three) > 0 and max(three) - min(three) <= AT_REST * max(three)
        if not is_at_rest or first < 0 or max(told) - min(told) > AT_REST * max(told):
            continue
        count += 1
        at = curve[bisect.bisect_right(times, poll.end_ns) - 1][1]
        gap = abs(at - poll.rss_bytes)
        if gap / poll.rss_bytes > worst[0]:
            worst = gap / poll.rss_bytes, f" ({at / MIB:.0f} for {poll.rss_bytes / MIB:.0f} MiB)"
    asked = "within 2 % of /proc, where it rests"
    # One or two can be the moment between two looks in which it moved and moved back.
    if count < 3:
        return Finding("sum of RSS", asked, "it hardly rested", "unknown")
    found = f"at most {worst[0]:.1%} off at {count} instants{worst[1]}"
    return Finding("sum of RSS", asked, found, verdict(worst[0] <= 0.02))


def held(watch: Watch, recording: Recording) -> Finding:
    """What the tree held at its highest, every page once, against what its cgroup was charged."""
    asked = "the memory controller's anon + shmem within the bound"
    if not watch.charges:
        return Finding("held at the peak", asked, "no memory cgroup here", "unknown")
    begin, end = recording.span
    looks = [look for look in watch.charges if begin <= look[0] <= end]
    if not looks:
        return Finding("held at the peak", asked, "nobody looked meanwhile", "unknown")
    place = max(range(len(looks)), key=lambda each: looks[each][1].held_bytes)
    truth = looks[place][1].held_bytes
    # The look and the report are of two instants: what moves is between its neighbours.
    around = looks[max(place - 1, 0) : place + 2]
    told = [recording.held_at(time) for time, _ in around]
    low, high = min(each.least_bytes for each in told), max(each.most_bytes for each in told)
    found = f"{low / MIB:.0f} to {high / MIB:.0f} for {truth / MIB:.0f} MiB"
    error = CHARGE_ERROR + truth // DRIFT_PART
    is_met = low - error <= truth <= high + error
    return Finding("held at the peak", asked, found, verdict(is_met))


def known(watch: Watch, recording: Recording) -> Finding:
    """How wide the bound is at the most that stood for a while, and so was to be known."""
    asked = f"at most 2 % of what stood for {STANDS_S:.0f} s, of {LARGE // MIB} MiB and more"
    if not watch.charges:
        return Finding("bound at the peak", asked, "no memory cgroup here", "unknown")
    begin, end = recording.span
    looks = [(time, each.held_bytes) for time, each in watch.charges if begin <= time <= end]
    standing = [look for look in looks if look[1] >= LARGE and has_stood(look, looks)]
    if not standing:
        return Finding("bound at the peak", asked, "nothing stood for so long", "MISSED")
    highest = max(held for _, held in standing)
    # Over the whole time that it stood, from the first moment on at which it had for long enough.
    there = [look for look in standing if (highest - look[1]) * 100 <= highest]
    places = sorted({place * (len(there) - 1) // 4 for place in range(5)})
    told = [(recording.held_at(there[place][0]), there[place]) for place in places]
    wide = [(width(each) / look[1], each, look) for each, look in told]
    share, each, (time, charged) = max(wide, key=lambda one: one[0])
    count = sum(one[0] <= 0.02 for one in wide)
    found = (
        f"so at {count} of {len(wide)} instants; at most {share:.1%}: {each.bytes / MIB:.0f} MiB"
    )
    found += f" ({each.least_bytes / MIB:.0f} to {each.most_bytes / MIB:.0f})"
    found += f" at +{(time - begin) / 1e9:.2f} s, charged {charged / MIB:.0f}"
    return Finding("bound at the peak", asked, found, verdict(count == len(wide)))


def width(held: Held) -> int:
    """By how much what is told to be held can be off."""
    return max(held.most_bytes - held.bytes, held.bytes - held.least_bytes)


def has_stood(look: tuple[int, int], looks: list[tuple[int, int]]) -> bool:
    """Whether a group was charged the same for long enough before a look, and is for a while after
    it: a recorder reads a process half a second after it has changed."""
    time, charged = look
    since = bisect.bisect_left(looks, (time - int(STANDS_S * 1e9), 0))
    until = bisect.bisect_right(looks, (time + int(LOOKS_S * 1e9), 0))
    # None at its begin or its end tells that the watch did not look for so long.
    if since == 0 or until == len(looks):
        return False
    return all(abs(held - charged) * 100 <= charged for _, held in looks[since - 1 : until + 1])


# The most that is held, against the kernel's: by this part, at this distance in time; beside others
# within bounds of this width.
PEAK_PART, PEAK_S, WIDTH_PART = 0.01, 0.2, 0.25


def charged(
    watch: Watch, before: Charged | None, recording: Recording, whose: str
) -> Iterator[Finding]:
    """What the report says was held at most, against the charge of the tree's group at 100 Hz."""
    asked = "1 % and 0.2 s" if whose == "own" else "within its bounds"
    if before is None or not watch.charges:
        yield Finding("peak", asked, "no memory cgroup", "unknown")
        return
    base = before.all_bytes()
    times = [at for at, _ in watch.charges]
    values = [charge.all_bytes() - base for _, charge in watch.charges]
    most = max(values)
    told = recording.report["held_peak"]
    least, figure, highest = (told[key] for key in ("at_least_bytes", "bytes", "at_most_bytes"))
    words = f"{most >> 20} MiB charged, told {figure >> 20}"
    if (least, highest) != (figure, figure):
        words += f" ({least >> 20} to {highest >> 20})"
    error = max(PEAK_PART * most, CHARGE_ERROR)
    if whose == "shared":
        yield Finding("peak", asked, words, verdict(least - error <= most <= highest + error))
        width = (highest - least) / most
        found = f"{width:.0%} of {most >> 20} MiB"
        is_narrow = width <= WIDTH_PART
        yield Finding("width", f"<= {WIDTH_PART:.0%}", found, verdict(is_narrow))
        return
    yield Finding("peak", "within 1 %", words, verdict(abs(figure - most) <= error))
    at = recording.report["peak"]["at"]["boot_ns"]
    first = bisect.bisect_left(times, at - int(PEAK_S * 1e9))
    last = bisect.bisect_right(times, at + int(PEAK_S * 1e9))
    near = max(values[first:last], default=0)
    found = f"{near >> 20} of {most >> 20} MiB within {PEAK_S} s of it"
    yield Finding("time", "within 0.2 s", found, verdict(near >= most - error))
