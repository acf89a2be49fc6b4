"""Pages that memtrace wrote of the recordings that its reports are tested on: every figure that is
read off a picture is the one of the JSON report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

from assemble import GOLDEN, write
from conftest import Opener
from encoding import Json
from reading import exact, plot, readout

NAMES = sorted(file.name for file in GOLDEN.iterdir() if file.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_figures_on_the_page_are_those_of_the_json(
    name: str, open_page: Opener, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    write(name, file)
    found: Json = json.loads((GOLDEN / f"{name}.json").read_text())
    page = open_page(file=file)
    assert page.locator("html").get_attribute("data-ready") == "true"
    assert page.locator("#plain h2").count() > 1
    peak = found["peak"]
    if peak is None:
        assert page.get_by_text("no row of memory").is_visible()
        return
    assert not plot(page).is_blank()
    if peak["held_bytes"] is not None:
        assert exact(page, "memory held, every page once") == peak["held_bytes"]
    if peak["sum_of_rss_bytes"] is not None:
        assert "sum of RSS" not in readout(page)
        page.get_by_role("checkbox", name="sum of RSS").check()
        assert exact(page, "sum of RSS") == peak["sum_of_rss_bytes"]
    the_table_has_every_peak(page, found)
    if any(device["peak"] for device in (found["gpu"] or {"devices": []})["devices"]):
        assert page.locator("#gpus .chart canvas").count() > 0
        assert "used" in readout(page, "#gpus")


def the_table_has_every_peak(page: Page, found: Json) -> None:
    heads = page.locator("#processes thead th").all_inner_texts()
    columns = [head.rstrip(" ▾▴") for head in heads]
    rows = page.locator("#processes tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    shown = {(row[columns.index("pid")], row[columns.index("peak RSS")]) for row in rows}
    for process in found["processes"][:50]:
        amount = in_words(process["peak"]["rss_bytes"])
        pid = "?" if process["pid"] is None else str(process["pid"])
        assert any(who == pid and amount in peak for who, peak in shown), (pid, amount)


def in_words(amount: int | None) -> str:
    """An amount as the text report writes it; Python rounds as Rust does."""
    if amount is None:
        return "?"
    value, units = float(amount), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    decimals = 1 if units[0] not in ("B", "KiB") and abs(value) < 99.95 else 0
    return f"{value:.{decimals}f} {units[0]}"


@pytest.mark.skipif("MEMTRACE_PAGE_IMAGES" not in os.environ, reason="cargo xtask page --images")
def test_the_pictures_of_the_documentation_are_small(open_page: Opener, tmp_path: Path) -> None:
    to = Path(os.environ["MEMTRACE_PAGE_IMAGES"])
    to.mkdir(exist_ok=True)
    file = tmp_path / "report.html"
    write("phases_on_gpus", file)
    page = open_page(file=file, viewport={"width": 1180, "height": 1000})
    below = page.locator("#gpus").bounding_box()
    assert below is not None
    height = int(below["y"]) - 10
    page.screenshot(path=to / "page.png", clip={"x": 0, "y": 0, "width": 1180, "height": height})
    page.locator("#phases").screenshot(path=to / "phases.png")
    for name in ("page.png", "phases.png"):
        assert (to / name).stat().st_size < 150 * 1024
