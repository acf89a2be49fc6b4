"""GPU memory as a step function: a row holds until the next row of the same thing."""

from __future__ import annotations

from typing import Any

from .processes import Process
from .table import Table

_KEY = ("device", "tgid", "gpu_instance_id", "compute_instance_id", "client_id")
_SHOWN = (
    ("device", "string"),
    ("upid", "int64"),
    ("tgid", "int32"),
    ("name", "string"),
    ("framework", "string"),
    ("role", "string"),
    ("rank", "string"),
    ("comm", "string"),
    ("kind", "string"),
    ("used_bytes", "int64"),
    ("host_bytes", "int64"),
    ("client_id", "int64"),
)
_DEVICE = (
    ("device", "string"),
    ("parent_device", "string"),
    ("name", "string"),
    ("is_unified", "bool"),
    ("total_bytes", "int64"),
    ("used_bytes", "int64"),
    ("reserved_bytes", "int64"),
)
_BOOKS = (("processes_bytes", "int64"), ("unattributed_bytes", "int64"))


def _rows(table: Table | None, names: list[str]) -> list[dict[str, Any]]:
    if table is None:
        return []
    return [dict(zip(names, row)) for row in zip(*map(table.column, names))]


def _standing(table: Table | None, time: int) -> list[dict[str, Any]]:
    """What processes held; a row of zero bytes says that one has left."""
    names = ["boot_ns", "source", *dict.fromkeys((*_KEY, *(name for name, _ in _SHOWN)))]
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in _rows(table, names):
        # The others tell of processes that have ended, and of who may hold something.
        if row["boot_ns"] <= time and row["source"] in ("nvml", "drm"):
            last[tuple(row[name] for name in _KEY)] = row
    found = [row for row in last.values() if row["used_bytes"] != 0 or row["host_bytes"]]
    found.sort(key=lambda row: -1 if row["used_bytes"] is None else row["used_bytes"], reverse=True)
    return found


def at(table: Table | None, processes: dict[int, Process], time: int) -> Table:
    """Who held memory of which device at a time on CLOCK_BOOTTIME."""
    found = _standing(table, time)
    for row in found:
        # Of processes that are not recorded the driver's name is all there is.
        row["name"] = row["comm"]
        if row["upid"] in processes:
            row.update(processes[row["upid"]]._asdict())
    return Table.of("gpu_at", {name: (kind, [row[name] for row in found]) for name, kind in _SHOWN})


def devices_at(devices: Table | None, processes: Table | None, time: int) -> Table:
    """The books of each device at a time on CLOCK_BOOTTIME."""
    last: dict[str, dict[str, Any]] = {}
    for row in _rows(devices, ["boot_ns", *(name for name, _ in _DEVICE)]):
        if row["boot_ns"] <= time:
            last[row["device"]] = row
    held: dict[str, int] = {}
    clients: set[tuple[str, int]] = set()
    for row in sorted(_standing(processes, time), key=lambda row: row["tgid"]):
        client = row["client_id"]
        # Processes that share a client hold one piece of memory.
        if client is not None and (row["device"], client) in clients:
            continue
        clients.add((row["device"], client))
        # The processes of an instance are its parent's too.
        parent = last.get(row["device"], {}).get("parent_device")
        for device in {row["device"], parent} - {None}:
            held[device] = held.get(device, 0) + (row["used_bytes"] or 0)
    for row in last.values():
        row["processes_bytes"] = held.get(row["device"], 0)
        used = row["used_bytes"]
        explained = row["processes_bytes"] + (row["reserved_bytes"] or 0)
        row["unattributed_bytes"] = None if used is None else used - explained
    columns = (*_DEVICE, *_BOOKS)
    rows = list(last.values())
    return Table.of(
        "gpu_devices_at", {name: (kind, [row[name] for row in rows]) for name, kind in columns}
    )
