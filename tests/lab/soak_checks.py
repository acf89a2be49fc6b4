"""What a soak trial asks of the recordings that remain, of who made them, and of who read them."""

from __future__ import annotations

import bisect
import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

from checks import MIB, Finding, verdict
from recording import Recording, Row

if TYPE_CHECKING:
    from soak import Call, Event, Soak, Usage

S = 1_000_000_000
# By what memory may rise from the second fifth of the time to the last.
FLAT_BYTES = 2 * MIB
BUDGET, LOAD_SHARE = 0.02, 0.25
MOST_FILES, READER_BYTES = 2000, 100 * MIB
# Around a crash or a kill downsampling leaves all rows (docs/recipes.md).
BEFORE_NS, AFTER_NS = 300 * S, 60 * S
# A recording's time begins while it attaches, and ends when all of it is written: of so much only
# the one before it or after it knows.
ALONE_NS = 2 * S
SIGNALS = {"oom-kill": 9, "crash": 11}


class Span(NamedTuple):
    """When a recording began and ended, on CLOCK_BOOTTIME; its end on the wall clock too."""

    begin_ns: int
    end_ns: int
    end_wall_ns: int
    is_closed: bool


def run_file(path: Path) -> Row:
    """What a recording says of itself; nothing where there is none."""
    try:
        return dict(json.loads((path / "run.json").read_text()))
    except (OSError, json.JSONDecodeError):
        return {}


def span(path: Path) -> Span | None:
    """The span of a recording."""
    if not (info := run_file(path)) or not info["clocks"]:
        return None
    first, last = info["clocks"][0], info["clocks"][-1]
    is_closed = info["state"] != "recording"
    return Span(first["boot_ns"], last["boot_ns"], last["wall_ns"], is_closed)


def period_s(path: Path) -> float:
    """To what a recording was downsampled; 0 where it was not."""
    downsampled = run_file(path).get("downsampled")
    return downsampled["period_ns"] / S if downsampled and downsampled["is_complete"] else 0


class Left:
    """A recording that is left at the end."""

    def __init__(self, soak: Soak, path: Path) -> None:
        found = span(path)
        assert found
        self.name, self.span, self.period_s = path.name, found, period_s(path)
        self.recording = Recording(soak.memtrace, path)
        columns = ("upid", "tgid", "start_boot_ns", "exit_boot_ns", "exit_code", "exit_signal")
        peak = ("oom_killed", "peak_rss_boot_ns", "peak_rss_bytes", "peak_error_bytes")
        self.processes: dict[int, list[Row]] = {}
        for row in self.recording.rows("process", *columns, *peak):
            self.processes.setdefault(row["tgid"], []).append(row)
        self.ooms = self.recording.rows("oom", "boot_ns", "victim_tgid")

        # From when to when it answers for what happened: where the ones before and after it have
        # part of its time, one of both does.
        self.since_ns, self.until_ns = self.span.begin_ns, self.span.end_ns

    def has(self, begin_ns: int, end_ns: int) -> bool:
        """Whether something was while it recorded."""
        return self.since_ns <= begin_ns and end_ns <= self.until_ns

    def knows(self, event: Event, marks: list[Row]) -> bool:
        """Whether it has what happened."""
        if event.kind == "mark":
            number = int(event.name.rpartition("-")[2])
            told = [json.loads(row["attributes"]) for row in marks if row["name"] == event.name]
            return told == [{"n": number}]
        row = self.started(event.pid, event.begin_ns, event.end_ns)
        if row is None or row["exit_signal"] != SIGNALS[event.kind]:
            return False
        kills = [kill for kill in self.ooms if kill["victim_tgid"] == event.pid]
        return event.kind == "crash" or (bool(row["oom_killed"]) and len(kills) == 1)

    def started(self, tgid: int, begin_ns: int, end_ns: int) -> Row | None:
        """The process of an id that started between two instants."""
        rows = self.processes.get(tgid, [])
        return next((row for row in rows if begin_ns <= row["start_boot_ns"] <= end_ns), None)


def remaining(soak: Soak) -> list[Left]:
    """What is left, in order."""
    paths = [path for path in soak.recordings.glob("memtrace-*") if span(path)]
    left = sorted((Left(soak, path) for path in paths), key=lambda each: each.span.begin_ns)
    if left:
        first, last = left[0], left[-1]
        gone = [one.end_ns for one in soak.spans.values() if one.begin_ns < first.span.begin_ns]
        first.since_ns = max(gone, default=first.span.begin_ns + ALONE_NS)
        last.until_ns -= ALONE_NS
    return left


def findings(soak: Soak) -> Iterator[Finding]:
    """All that is asked."""
    left = remaining(soak)
    asked: list[Callable[[], Iterable[Finding]]] = [
        lambda: [days(soak)],
        lambda: [memory(soak, who) for who in ("parent", "recorder", "watch")],
        lambda: [cpu(soak, left), watch_cpu(soak), disk(soak)],
        lambda: [retention(soak, left)],
        lambda: [borders(soak, left)],
        lambda: churned(soak, left),
        lambda: [happened(soak, left)],
        lambda: [heard(soak)],
        lambda: [tiers(soak, left)],
        lambda: [peaks(soak, left)],
        lambda: [losses(left)],
        lambda: [calls("readers", soak.reads), calls("downsampling", soak.downsamplings)],
    ]
    for ask in asked:
        try:
            yield from ask()
        except Exception as error:  # What can't be answered is a finding, and the others go on.
            traceback.print_exc()
            yield Finding("a question", "answered", f"{type(error).__name__}: {error}", "MISSED")


def days(soak: Soak) -> Finding:
    """Whether all that was to run ran to the end."""
    troubles = soak.troubles
    found = f"{len(soak.spans)} recordings" + "; ".join(["", *troubles[:3]])
    return Finding("the month", "runs to its end", found, verdict(not troubles))


def memory(soak: Soak, who: str) -> Finding:
    """Whether the anonymous memory of a process is flat."""
    used: list[Usage] = [use for one in soak.samples if (use := getattr(one, who))]
    what = {"parent": "memory of record --every", "recorder": "memory of its recorders"}
    what_of = what.get(who, f"memory of {who}")
    asked = "anonymous: last fifth at most 2 MiB above the second"
    fifth = len(used) // 5
    if not fifth:
        return Finding(what_of, asked, "too few samples", "unknown")
    anon = [use.anon_bytes for use in used]
    early, late = median(anon[fifth : 2 * fifth]), median(anon[-fifth:])
    found = f"{early / MIB:.1f}, then {late / MIB:.1f} MiB, at most {max(anon) / MIB:.1f}"
    found += f"; RSS at most {max(use.rss_bytes for use in used) / MIB:.1f} MiB"
    return Finding(what_of, asked, found, verdict(late - early <= FLAT_BYTES))


def share(used: list[tuple[float, Usage]]) -> float:
    """What processes take of a CPU, between two samples of one."""
    pairs = [pair for pair in zip(used, used[1:]) if pair[0][1].pid == pair[1][1].pid]
    wall_s = sum(after[0] - before[0] for before, after in pairs)
    return sum(after[1].cpu_s - before[1].cpu_s for before, after in pairs) / (wall_s or 1)


def cpu(soak: Soak, left: list[Left]) -> Finding:
    """What the recorders take while they observe, and with all that is theirs."""
    observing = share([(one.time_s, one.recorder) for one in soak.samples if one.recorder])
    bpf = [
        max(row["bpf_run_ns"] or 0 for row in rows) / (each.span.end_ns - each.span.begin_ns)
        for each in left
        if (rows := each.recording.rows("self_cost", "bpf_run_ns"))
    ]
    whole = soak.recorder_cpu / (soak.samples[-1].time_s - soak.samples[0].time_s)
    found = f"{observing:.2%} of a CPU; with beginnings, ends and findings {whole:.2%}"
    found += f"; BPF in others at most {max(bpf):.2%}" if bpf else ""
    met = verdict(observing < BUDGET) if observing else "unknown"
    return Finding("CPU of recorders", "below 2 % while they observe", found, met)


def watch_cpu(soak: Soak) -> Finding:
    """What `memtrace watch` takes itself, and what the load does."""
    own = share([(one.time_s, one.watch) for one in soak.samples if one.watch])
    load = soak.load_cpu / (soak.samples[-1].time_s - soak.samples[0].time_s)
    found = f"watch {own:.2%}, load {load:.1%} of a CPU"
    return Finding("CPU of others", "load below 25 %", found, verdict(load < LOAD_SHARE))


def disk(soak: Soak) -> Finding:
    """What lies in the directory. When a recording begins, the size that is kept is that of all but
    itself and the one before it, which is not closed yet."""
    most, files = (max(getattr(one, key) for one in soak.samples) for key in ("bytes", "files"))
    found = f"{most / MIB:.1f} MiB, {files} files; a recording {soak.largest_bytes / MIB:.1f} MiB"
    is_met = most <= soak.kept_bytes + 2 * soak.largest_bytes and files <= MOST_FILES
    asked = f"at most {soak.kept_bytes / MIB:.0f} MiB and two recordings; {MOST_FILES} files"
    return Finding("disk", asked, found, verdict(is_met))


def retention(soak: Soak, left: list[Left]) -> Finding:
    """The old ones are gone, and no others."""
    asked = f"gone when {soak.keep_h} h old, or too much; no others"
    names = [each.name for each in left]
    # They are looked through whenever a recording begins, and each hour.
    looked = left[-1].span.begin_ns if left else 0
    age = {name: (looked - seen.end_ns) / S for name, seen in soak.spans.items() if seen.is_closed}
    keep_s = soak.keep_h * 3600
    stayed = [name for name in names if age.get(name, 0) > keep_s + 5]
    early = [name for name in age if name not in names and age[name] < keep_s - 5]
    is_full = max(one.bytes for one in soak.samples) > soak.kept_bytes
    oldest = min((soak.spans[name].begin_ns for name in names if name in soak.spans), default=0)
    between = [name for name in early if soak.spans[name].begin_ns > oldest]
    found = f"{len(names)} of {len(soak.spans)} left, {len(stayed)} of them too old"
    found += f", {len(early)} gone for the size, {len(between)} missing between"
    is_met = not stayed and not between and (is_full or not early)
    met: Literal["ok", "MISSED", "unknown"] = verdict(is_met)
    if is_met and not any(one > keep_s for one in age.values()):
        found, met = f"{found}; none was so old", "unknown"
    return Finding("retention", asked, found, met)


def borders(soak: Soak, left: list[Left]) -> Finding:
    """Each recording begins before the one before it ends, and has who lives all the time."""
    overlaps = [(one.span.end_ns - other.span.begin_ns) / S for one, other in zip(left, left[1:])]
    absent = [
        f"{pid} in {each.name}" for each in left for pid in soak.busy if pid not in each.processes
    ]
    found = f"{len(overlaps)} borders"
    if overlaps:
        found += f", overlap {min(overlaps):.2f} to {max(overlaps):.2f} s"
    has = f"without {'; '.join(absent[:3])}" if absent else "the busy ones are in each"
    found += f"; {has}"
    is_met = bool(overlaps) and min(overlaps) >= 0 and not absent
    return Finding("borders", "no gap; who lives on is in both", found, verdict(is_met))


class Churned(NamedTuple):
    """A short-lived process."""

    tgid: int
    begin_ns: int
    end_ns: int
    # When its end was seen.
    gone_ns: int


def churn(soak: Soak) -> list[Churned]:
    """Those that the load says it started."""
    running: dict[int, tuple[int, int]] = {}
    found = []
    for line in (soak.place / "churn.out").read_text().splitlines():
        sign, tgid, *times = line.split()
        if sign == "+":
            running[int(tgid)] = int(times[0]), int(times[1])
        elif started := running.pop(int(tgid), None):
            found.append(Churned(int(tgid), *started, int(times[0])))
    return found


def churned(soak: Soak, left: list[Left]) -> Iterator[Finding]:
    """Each process that was started while recordings were made is in one, with its end."""
    all_of_them = churn(soak)
    asked_of, in_two, unended, absent, missing = 0, 0, 0, 0, list[str]()
    for process in all_of_them:
        among = [each for each in left if each.has(process.begin_ns, process.end_ns)]
        rows = [row for each in among if (row := each.started(*process[:3]))]
        asked_of += bool(among)
        in_two += len(rows) > 1
        absent += len(among) - len(rows) if rows else 0
        if among and not rows:
            after = (process.begin_ns - among[0].span.begin_ns) / S
            missing.append(f"{process.tgid} in {among[0].name} +{after:.3f} s")
        is_over = rows and any(each.has(process.begin_ns, process.gone_ns) for each in among)
        unended += bool(is_over) and all(row["exit_boot_ns"] is None for row in rows)
    found = f"{asked_of - len(missing)} of {asked_of}, of {len(all_of_them)} started"
    found += f"; at borders {in_two} in both, {absent} in one of both"
    found += f"; missing {'; '.join(missing[:3])}" if missing else ""
    yield Finding("short-lived processes", "all", found, verdict(asked_of > 0 and not missing))
    ended = f"{asked_of - len(missing) - unended} of {asked_of - len(missing)}"
    yield Finding("their ends", "all that were in time", ended, verdict(not unended))


def happened(soak: Soak, left: list[Left]) -> Finding:
    """Crashes, kills and marks, in the recordings as they happened."""
    asked_of: Counter[str] = Counter()
    marks = {each.name: each.recording.rows("mark", "name", "attributes") for each in left}
    thinned, wrong = 0, []
    for event in soak.events:
        among = [each for each in left if each.has(event.begin_ns, event.end_ns)]
        if not among:
            continue
        asked_of[event.kind] += 1
        thinned += all(each.period_s > 0 for each in among)
        if not any(each.knows(event, marks[each.name]) for each in among):
            wrong.append(f"{event.kind} {event.name or event.pid} in {among[0].name}")
    found = ", ".join(f"{count} x {kind}" for kind, count in sorted(asked_of.items()))
    found += f", {thinned} in downsampled ones"
    found += f"; wrong: {'; '.join(wrong[:3])}" if wrong else ""
    if not soak.group:
        found += "; kills not run: no memory cgroup"
    asked = "each crash, OOM kill and mark"
    return Finding("events", asked, found, verdict(bool(asked_of) and not wrong))


def told(soak: Soak) -> list[Row]:
    """What the hook was given."""
    path = soak.place / "heard"
    lines = path.read_text().split("\n") if path.exists() else []
    # The last one can be one that is being written.
    return [json.loads(line) for line in lines[:-1] if line]


def unheard(soak: Soak) -> list[Event]:
    """Of which events the hook was not told."""
    heard_of = Counter((event["event"], event["pid"]) for event in told(soak))
    return [one for one in soak.events if one.kind in SIGNALS and not heard_of[one.kind, one.pid]]


def heard(soak: Soak) -> Finding:
    """Whether the hook was called for each crash and kill."""
    events = [one for one in soak.events if one.kind in SIGNALS]
    missed, given = unheard(soak), told(soak)
    without = sum(event["report"] is None for event in given if event["event"] in SIGNALS)
    found = f"{len(events) - len(missed)} of {len(events)}; {len(given)} calls in all"
    found += f", {without} kills and crashes without a report"
    left_out = sum(event.get("left_out_count") or 0 for event in given)
    found += f", {left_out} left out" * (left_out > 0)
    found += "; not " + ", ".join(f"{one.kind} {one.pid}" for one in missed[:3]) if missed else ""
    return Finding(
        "hook", "called for each crash and kill", found, verdict(bool(events) and not missed)
    )


# Downsampling keeps what processes hold at the instants of readings too, just before each.
READINGS = ["cgroup_mem", "node_mem", "layout", "pss", "tmpfs", "shm_object", "cached_file"]
READINGS += ["self_cost"]
INSTANTS = ("begin_boot_ns", "end_boot_ns", "rss_peak_boot_ns", "held_peak_boot_ns")


def tiers(soak: Soak, left: list[Left]) -> Finding:
    """How many rows a busy process has, apart from the time around crashes and kills; and how many
    that stand at no instant that is named, as the peaks of up to 10,000 processes are."""
    rates: dict[float, list[tuple[float, float]]] = {}
    for each in left:
        free = apart(each)
        free_s = sum(end - begin for begin, end in free) / S
        if free_s < 5 * max(1, each.period_s):
            continue
        busy = {each.processes[pid][0]["upid"] for pid in soak.busy if pid in each.processes}
        times = [
            row["boot_ns"]
            for row in each.recording.rows("mem", "boot_ns", "upid")
            if row["upid"] in busy and any(begin < row["boot_ns"] < end for begin, end in free)
        ]
        named = instants(each)
        others = sum(time not in named for time in times)
        per_process_s = len(busy) * free_s
        rates.setdefault(each.period_s, []).append(
            (len(times) / per_process_s, others / per_process_s)
        )
    asked = "a second, without named instants: 2 in a period"
    parts, is_met = [], True
    for period, those in sorted(rates.items()):
        most, most_others = (max(each[place] for each in those) for place in (0, 1))
        what = f"{period:g} s" if period else "all rows"
        parts.append(f"{len(those)} of {what}: {most:.2f}, {most_others:.2f}")
        is_met = is_met and (not period or most_others <= 2.2 / period)
    is_known = any(rates)
    found = "; ".join(parts) or "none was apart from a kill"
    met = verdict(is_met) if is_known else "unknown"
    return Finding("rows of a busy process", asked, found, met)


def apart(each: Left) -> list[tuple[int, int]]:
    """The times in which a recording has neither a crash nor a kill nearby."""
    rows = [row for rows in each.processes.values() for row in rows]
    ends = [row["exit_boot_ns"] for row in rows if row["exit_signal"] and row["exit_boot_ns"]]
    around = sorted([*ends, *(row["boot_ns"] for row in each.ooms)])
    at, free = each.span.begin_ns, []
    for begin, end in [(one - BEFORE_NS, one + AFTER_NS) for one in around]:
        if begin > at:
            free.append((at, begin))
        at = max(at, end)
    return [*free, (at, each.span.end_ns)] if at < each.span.end_ns else free


def instants(each: Left) -> set[int]:
    """Those that are named, and those of readings."""
    found: set[int] = set()
    for rows in each.processes.values():
        for row in rows:
            found.update(row[key] for key in row if key.endswith("boot_ns") and row[key])
    for row in each.recording.rows("phase", *INSTANTS):
        found.update(row[key] for key in INSTANTS if row[key])
    found.update(time - 1 for time in list(found))
    for table in READINGS:
        found.update(row["boot_ns"] - 1 for row in each.recording.rows(table, "boot_ns"))
    return found


def peaks(soak: Soak, left: list[Left]) -> Finding:
    """Each busy process's peak is the kernel's."""
    logs = []
    for number, pid in enumerate(soak.busy):
        lines = (soak.place / f"busy-{number}.out").read_text().splitlines()
        logs.append((pid, [tuple(map(int, line.split())) for line in lines]))
    known, wrong, worst = 0, [], 0
    for each in left:
        for pid, log in logs:
            row = each.processes.get(pid, [{}])[0]
            if row.get("peak_rss_bytes") is None:
                wrong.append(f"{pid} in {each.name}: unknown")
                continue
            low, high = (at(log, each.span.end_ns + lag) << 10 for lag in (-2 * S, S))
            error = row["peak_error_bytes"] or 0
            off = max(low - row["peak_rss_bytes"], row["peak_rss_bytes"] - high, 0)
            known += 1
            worst = max(worst, off)
            if off > error:
                wrong.append(
                    f"{pid} in {each.name}: {row['peak_rss_bytes'] >> 10} for {low >> 10} KiB"
                )
    found = f"{known - len(wrong)} of {known}, at most {worst >> 10} KiB off"
    found += f"; not {'; '.join(wrong[:3])}" if wrong else ""
    return Finding(
        "peaks of busy ones",
        "ru_maxrss, within their bound",
        found,
        verdict(known > 0 and not wrong),
    )


def at(log: list[tuple[int, ...]], time_ns: int) -> int:
    """The highest RSS so far, in KiB."""
    place = bisect.bisect_right(log, (time_ns,)) - 1
    return log[max(place, 0)][1]


def losses(left: list[Left]) -> Finding:
    """What recordings say was lost."""
    lost: Counter[str] = Counter()
    for each in left:
        for row in each.recording.rows("diag", "severity", "kind", "subject", "count"):
            if row["severity"] == "loss":
                lost[f"{row['kind']} {row['subject']}"] += row["count"] or 1
    found = ", ".join(f"{count} x {what}" for what, count in lost.most_common(4)) or "nothing"
    return Finding("lost", "nothing", found, verdict(not lost))


def calls(what: str, made: list[Call]) -> Finding:
    """Whether commands that ran meanwhile did what they should."""
    failed = [f"{call.words}: {call.status} {call.said[-150:]!r}" for call in made if call.status]
    asked = "all succeed, within 100 MiB"
    if not made:
        return Finding(what, asked, "none", "unknown")
    slowest = max(made, key=lambda call: call.seconds)
    most = max(call.rss_bytes for call in made)
    found = f"{len(made) - len(failed)} of {len(made)}, at most {most / MIB:.0f} MiB"
    found += f", {slowest.seconds:.1f} s ({slowest.words})"
    found += f"; {'; '.join(failed[:2])}" if failed else ""
    return Finding(what, asked, found, verdict(not failed and most <= READER_BYTES))
