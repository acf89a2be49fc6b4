"""The page of a run: all hosts together, a panel for each, tables; and a thousand hosts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from playwright.sync_api import Page

from assemble import GOLDEN, write_run
from conftest import Opener
from encoding import Json
from reading import exact, in_full, plot, readout, saved, settle
from test_golden import in_words

NAMES = sorted(file.stem for file in GOLDEN.glob("*.parts"))


def rows(page: Page, where: str) -> list[dict[str, str]]:
    heads = page.locator(f"{where} thead th").all_inner_texts()
    found: list[list[str]] = page.locator(f"{where} tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return [dict(zip(heads, row, strict=True)) for row in found]


@pytest.mark.parametrize("name", NAMES)
def test_figures_on_the_page_are_those_of_the_json(
    name: str, open_page: Opener, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    found = write_run(name, file)
    page = open_page(file=file)
    assert page.locator("html").get_attribute("data-ready") == "true"
    assert page.locator("h1").inner_text() == f"memtrace: run {found['run']}"
    head = page.locator("header").inner_text()
    for line in found["answer"]:
        assert line["text"] in head
    assert not plot(page).is_blank()
    peak = found["peak"]
    assert exact(page, "all hosts") == peak["bytes"]
    assert peak["bytes"] <= exact(page, "no more than")
    # Of one instant it can be unknown where clocks leave it open.
    if in_full(page, "no less than") == "unknown":
        assert peak["unsure_host_count"] > 0
    else:
        assert exact(page, "no less than") <= peak["bytes"]
    recorded = [line for line in found["hosts"] if line["status"] != "missing"]
    names = page.locator(".panel h3 bdi").all_inner_texts()
    assert names == [line["host"] for line in recorded]
    table = rows(page, "#hosts")
    assert [row["host"] for row in table] == [line["host"] for line in found["hosts"]]
    for row, line in zip(table, found["hosts"], strict=True):
        if line["status"] != "missing":
            assert row["peak"] == in_words(line["peak_bytes"])
    assert len(rows(page, "#roles")) == len(found["roles"])
    assert page.locator("#ends tbody tr").count() == len(found["ends"])
    assert page.locator("#outliers tbody tr").count() == len(found["outliers"])


@pytest.fixture
def ranks(open_page: Opener, tmp_path: Path) -> Page:
    file = tmp_path / "run.html"
    write_run("eight_ranks", file)
    return open_page(file=file)


def test_the_next_command_names_the_real_place(ranks: Page) -> None:
    code = ranks.locator("header code").inner_text()
    assert code.startswith("memtrace report root/run=4711/host=node1/rec="), code


def test_panels_have_one_scale_of_time_and_memory_and_one_cursor(ranks: Page) -> None:
    panels = ranks.locator(".panel")
    panels.first.scroll_into_view_if_needed()
    charts = [plot(ranks, f".panel:nth-child({place + 1})") for place in range(2)]
    # The second host held more: on one scale its line is higher, on its own it fills the panel.
    blue = "#0072b2"
    tops = [max(height or 0 for height in chart.columns(blue)) for chart in charts]
    assert tops[0] < tops[1]
    ranks.locator("#panels select").select_option("own")
    settle(ranks)
    own = [max(height or 0 for height in chart.columns(blue)) for chart in charts]
    assert own[0] > tops[0]
    ranks.locator("#panels select").select_option("shared")
    settle(ranks)
    assert [max(height or 0 for height in chart.columns(blue)) for chart in charts] == tops
    box = charts[0].box
    ranks.mouse.move(charts[0].x(0.5), box["y"] + box["height"] / 2)
    settle(ranks)
    shown = ranks.locator(".panel .now").all_inner_texts()
    assert all(words.endswith("GiB") for words in shown), shown
    assert set(readout(ranks)) == {"all hosts", "no more than", "no less than"}


def test_a_lost_host_ends_where_nothing_is_known_and_is_named(
    open_page: Opener, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    write_run("lost_host", file, "--expect-hosts", "node[1-4]")
    page = open_page(file=file)
    first = page.locator(".panel").first
    assert "node2" in first.inner_text() and "not heard from any more" in first.inner_text()
    heights = plot(page, ".panel").columns("#0072b2")
    known = [height is not None for height in heights]
    assert any(known[: len(known) // 2]) and not any(known[len(known) * 4 // 5 :])
    assert "node4" in page.locator("#hosts").inner_text()
    assert page.locator(".panel", has_text="node4").count() == 0


def test_tables_are_saved_as_they_are_in_the_json(ranks: Page, tmp_path: Path) -> None:
    lines = saved(ranks, "#hosts", tmp_path)
    assert lines[0].startswith("host,status,")
    assert len(lines) == 3
    assert len(saved(ranks, "#ranks", tmp_path)) == 9
    assert saved(ranks, "#panels", tmp_path)[0] == (
        'offset_s,"node2, most_bytes","node2, least_bytes","node1, most_bytes","node1, least_bytes"'
    )


@pytest.mark.parametrize("width", [320, 500, 800])
def test_a_narrow_window_has_no_sideways_scrolling(
    width: int, open_page: Opener, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    write_run("oom_chain", file)
    page = open_page(file=file, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not plot(page).is_blank()


def test_dark_follows_the_system(open_page: Opener, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    write_run("eight_ranks", file)
    page = open_page(file=file, color_scheme="dark")
    assert any(plot(page).columns("#3d9be0"))
    page.emulate_media(color_scheme="light")
    settle(page)
    assert any(plot(page).columns("#0072b2"))
    assert any(plot(page, ".panel").columns("#0072b2"))


def thousand() -> str:
    """The parts of thirty hosts under a thousand names, each with memory of its own."""
    chance = random.Random(7)

    def moving(part: Json) -> Json:
        # As a part has it: bins, and by how much the least, the mean and the most of them move.
        runs: list[int] = []
        for _ in range(600):
            runs += [1, chance.randrange(1 << 20) * 64, 0, chance.randrange(1 << 22), 0, 0]
        return {**part["held"], "runs": runs}

    parts: list[Json] = [
        json.loads(line) for line in (GOLDEN / "many_hosts.parts").read_text().splitlines()
    ]
    made = (
        {**part, "host": f"h{place:04}", "held": moving(part)}
        for place, part in enumerate(parts[place % 30] for place in range(1_000))
    )
    return "".join(json.dumps(part) + "\n" for part in made)


def test_a_thousand_hosts_are_a_page_that_opens_at_once(open_page: Opener, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    found = write_run("many_hosts", file, parts=thousand())
    assert file.stat().st_size < 2_000_000, file.stat().st_size
    page = open_page(file=file)
    assert page.locator(".panel").count() == 61
    others = page.locator(".panel").last.inner_text()
    assert "940 other hosts" in others
    told = {outlier["host"] for outlier in found["outliers"]}
    drawn = set(page.locator(".panel h3 bdi").all_inner_texts())
    assert told & drawn == told if len(told) < 60 else len(told & drawn) >= 59
    assert page.locator("#hosts tbody tr").count() == 500
    assert "500 of 1,000 are listed" in page.locator("#hosts").inner_text()
    assert exact(page, "all hosts") == found["peak"]["bytes"]
    print(f"1,000 hosts: {file.stat().st_size / 1e6:.2f} MB")


def test_names_that_are_attacks_stay_text(open_page: Opener, tmp_path: Path) -> None:
    from documents import HOSTILE_NAMES

    parts: list[Json] = [
        json.loads(line) for line in (GOLDEN / "eight_ranks.parts").read_text().splitlines()
    ]
    names = iter(HOSTILE_NAMES * 40)
    for part in parts:
        for role in part["roles"]:
            role["name"] = next(names)
        for rank in part["ranks"]:
            rank["role"], rank["rank"] = next(names), next(names)
        part["host"] = next(names)[:100]
    lines = "".join(json.dumps(part) + "\n" for part in parts)
    file = tmp_path / "run.html"
    write_run("eight_ranks", file, parts=lines)
    page = open_page(file=file)
    assert page.locator("img, iframe, object, embed, link").count() == 0
    for hidden in ["\u202e", "\u2066", "\u200b", "\ufeff", "\x1b", "\x07"]:
        assert hidden not in page.content()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280, "a long name"
