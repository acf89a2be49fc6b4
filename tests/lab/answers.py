"""What the report answers, held against what the trial knows and the memory controller said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from checks import MIB, Finding, verdict
from recording import Comparison, Recording

# A process below this changes no answer.
MATTERS_BYTES = 8 * MIB

# How much of the text is "the first lines".
FIRST_LINES = 30

# What the report says where something grows that should not.
GROWS = re.compile(r"(grows|grew) by")
# A sentence goes over several lines of a terminal.
SENTENCE_END = re.compile(r"(?<=[a-z])\.(?= [A-Z])")


def residuals(recording: Recording, group: str) -> Iterator[Finding]:
    """What the ledger of the trial's own cgroup leaves unexplained, at the peak."""
    peak = recording.report["peak"] or {}
    for ledger in peak.get("ledgers", []):
        if (ledger["cgroup"] or "").endswith(group):
            current = max(ledger["current_bytes"], 1)
            share = ledger["residual_bytes"] / current
            found = f"{share:.2%} of {current / MIB:.0f} MiB"
            date = dated(ledger)
            found += f", {date}" if date else ""
            is_met = abs(share) <= 0.01 or bool(date)
            yield Finding("residual", "at most 1 %, or dated", found, verdict(is_met))
            return
    yield Finding("residual", "at most 1 %, or dated", "no ledger of the group", "MISSED")


def dated(ledger: dict[str, Any]) -> str:
    """What the ledger says of time that can be its residual; empty where it says nothing."""
    residual = ledger["residual_bytes"]
    if abs(residual) * 100 <= ledger["current_bytes"]:
        return ""
    if ledger["skew_ns"] or ledger["span_ns"]:
        skew, span = ledger["skew_ns"] / 1e6, ledger["span_ns"] / 1e6
        return f"told to be read {abs(skew):.0f} ms apart, over {span:.0f} ms"
    # Who ended shortly before can have held all of it still, and never less than nothing.
    ending = sum(line["bytes"] for line in ledger["ending"])
    is_enough = 0 < residual <= ending + ledger["current_bytes"] // 100
    return f"told to be of {ending / MIB:.0f} MiB that ended just before" if is_enough else ""


def roles(recording: Recording, expected: set[str]) -> Finding:
    """Every process that matters has a name of its own, and those that must be there are."""
    nameless = [
        f"{row['tgid']} {(row['cmdline'] or row['comm'])[:50]}"
        for row in recording.processes
        if row["role"] is None and (row["peak_rss_bytes"] or 0) >= MATTERS_BYTES
    ]
    told = {role["name"] for role in recording.report["roles"]}
    broken = sorted(name for name in told if not name.isprintable())
    missing = sorted(expected - told)
    found = f"{len(told)} roles"
    found += f", without {', '.join(missing)}" if missing else ""
    found += f", nameless {'; '.join(nameless[:4])}" if nameless else ""
    found += f", {len(broken)} with control characters" if broken else ""
    asked = "every process of 8 MiB and more"
    return Finding("roles", asked, found, verdict(not (missing or nameless or broken)))


def lines_of(recording: Recording, name: str) -> list[dict[str, Any]]:
    """The lines of phases of one name."""
    phases = recording.report["phases"] or {"lines": []}
    return [line for line in phases["lines"] if line["name"] == name]


def phase_ends(recording: Recording, name: str, most_bytes: int) -> Finding:
    """A phase that the log ends, ends with it, and costs no more than it does."""
    lines = [line for line in lines_of(recording, name) if "ended_by" in line]
    asked = f"ended by the log, at most {most_bytes // MIB} MiB each"
    if not lines:
        return Finding(name, asked, "no such phase", "MISSED")
    grown = [line["own"]["delta"]["rss_bytes"] or 0 for line in lines if line["own"]]
    ends = sorted({line["ended_by"] for line in lines})
    found = f"{len(lines)}, ended by {', '.join(ends)}, own {max(grown, default=0) / MIB:+.0f} MiB"
    is_met = ends == ["mark"] and max(grown, default=0) <= most_bytes
    return Finding(name, asked, found, verdict(is_met))


def slope(recording: Recording, name: str, truth_bytes: int) -> Finding:
    """What a step of the trial keeps, within the interval that is told."""
    asked = f"{truth_bytes / MIB:.0f} MiB within its interval"
    for line in lines_of(recording, name):
        own = (line.get("steps") or {}).get("own")
        if own:
            low, high = own["low_bytes_per_step"], own["high_bytes_per_step"]
            if low is None or high is None:
                return Finding(f"slope of {name}", asked, "without an interval", "MISSED")
            found = f"{own['bytes_per_step'] / MIB:.2f} ({low / MIB:.2f} to {high / MIB:.2f}) MiB"
            # What the truth is known to: an allocator's rounding.
            is_met = low - MIB / 8 <= truth_bytes <= high + MIB / 8
            return Finding(f"slope of {name}", asked, found, verdict(is_met))
    return Finding(f"slope of {name}", asked, "none was told", "MISSED")


def grower(recording: Recording, role: str) -> Finding:
    """The role that leaks is named where a person looks first."""
    first = " ".join(line.strip() for line in recording.text.splitlines()[:FIRST_LINES])
    about = [sentence for sentence in SENTENCE_END.split(first) if GROWS.search(sentence)]
    found = about[0] if about else "no sentence in the first lines"
    is_met = any(role in sentence for sentence in about)
    return Finding("who leaks", f"{role}, in the first lines", found, verdict(is_met))


def no_grower(recording: Recording) -> Finding:
    """Where nothing leaks, nothing is said to."""
    about = [line.strip() for line in recording.text.splitlines() if GROWS.search(line)]
    found = " ".join(about)[:100] or "none"
    return Finding("sentences of growth", "none", found, verdict(not about))


def quiet_diff(comparison: Comparison) -> Finding:
    """Two recordings of the same fail no gate."""
    excesses = [f"{each['figure']} of {each['name']}" for each in comparison.told["excesses"]]
    found = f"status {comparison.status}"
    found += f": {', '.join(excesses)} rose" if excesses else ", nothing rose"
    is_met = comparison.status == 0 and not excesses
    return Finding("diff --fail-above 5%", "status 0", found, verdict(is_met))


def telling_diff(comparison: Comparison, phase: str, role: str) -> Finding:
    """A recording with a leak fails the gate, by the phase and the role that leak."""
    rose = [each["name"] for each in comparison.told["excesses"] if each["figure"] == "per_step"]
    stages = {stage["name"]: stage["role"] or "no role" for stage in comparison.told["stages"]}
    first = " ".join(line.strip() for line in comparison.text.splitlines()[:FIRST_LINES])
    found = f"status {comparison.status}"
    found += "".join(f", {name} by {stages[name]}" for name in rose) or ", no phase rose"
    is_named = phase in rose and role in stages[phase] and phase in first and role in first
    is_met = comparison.status == Comparison.ABOVE and is_named
    asked = f"status {Comparison.ABOVE}, and {phase} by {role}"
    return Finding("diff --fail-above 5%", asked, found, verdict(is_met))
