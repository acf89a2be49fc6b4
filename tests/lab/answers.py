"""What the report answers, held against what the trial knows and the memory controller said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from checks import MIB, Finding, verdict
from recording import Recording

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
            share = ledger["residual_bytes"] / max(ledger["current_bytes"], 1)
            found = f"{share:.2%} of {ledger['current_bytes'] / MIB:.0f} MiB"
            is_dated = bool(ledger["skew_ns"] or ledger["span_ns"] or ledger["ending"])
            found += ", and told that its parts are of different instants" if is_dated else ""
            is_met = abs(share) <= 0.01 or is_dated
            yield Finding("residual", "at most 1 %, or dated", found, verdict(is_met))
            return
    yield Finding("residual", "at most 1 %, or dated", "no ledger of the group", "MISSED")


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
