"""The parts below the main chart: lanes, ledger, phases, steps, table, comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

import documents
from conftest import Opener
from encoding import GIB, MIB, SECOND, Json, band, instant
from reading import broken, plot, readout, saved, settle, when


@pytest.fixture
def page(open_page: Opener) -> Page:
    return open_page(documents.ordinary())


def lane(page: Page, row: int, part: float) -> None:
    """Points at a lane, where a part of the time has passed."""
    lanes = page.locator(".lanes")
    lanes.scroll_into_view_if_needed()
    box, chart = lanes.bounding_box(), plot(page)
    assert box is not None
    lanes.scroll_into_view_if_needed()
    page.mouse.move(chart.x(part), (lanes.bounding_box() or box)["y"] + row * 16 + 9)
    settle(page)


def amount(words: str) -> float:
    number, unit = words.replace(",", "").split(" ")[:2]
    return float(number) * {"B": 1, "KiB": 1024, "MiB": MIB, "GiB": GIB}[unit]


def test_a_lane_names_its_process_and_what_it_held(shown: Page) -> None:
    lane(shown, 1, 0.35)
    status = shown.locator("#lanes .status").inner_text()
    assert status.startswith("vLLM worker TP0 820, 6.0 GiB at +4")
    assert "peak 12.0 GiB at +60.0s, +3.0 GiB/h, +20.0s to +1m40s, SIGKILL (OOM killer)" in status


def test_lanes_share_the_cursor_and_the_zoom_of_the_charts(page: Page) -> None:
    lane(page, 0, 0.25)
    assert readout(page)["vLLM API server"] == "1.5 GiB"
    page.locator(".lanes").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#lanes .status").inner_text().startswith("vLLM worker TP0")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("#pinned").is_visible()


def test_lanes_are_filtered_by_text(page: Page) -> None:
    page.locator("#lanes input[type=search]").fill("helper 2")
    assert page.locator("#lanes .status").inner_text() == "12 of 32 processes"
    page.locator("#lanes input[type=search]").fill("820 worker")
    assert page.locator("#lanes .status").inner_text() == "1 of 32 processes"
    page.locator("#lanes input[type=search]").fill("no such thing")
    assert page.locator("#lanes .status").inner_text() == "0 of 32 processes"


def test_thousands_of_lanes_and_rows_stay_quick(open_page: Opener) -> None:
    page = open_page(documents.many())
    assert page.locator("#lanes .status").inner_text() == "5,000 processes"
    page.locator(".lanes").evaluate("(lanes) => { lanes.scrollTop = lanes.scrollHeight; }")
    lane(page, 25, 0.99)
    assert page.locator("#lanes .status").inner_text().startswith("job 4999")
    rows = page.locator("#processes tbody tr")
    assert rows.count() == 100
    page.locator("#processes .rows").evaluate("(rows) => { rows.scrollTop = rows.scrollHeight; }")
    rows.nth(150).wait_for(state="attached")
    took = page.evaluate(
        """() => { const begin = performance.now();
        [...document.querySelectorAll('#processes th button')].at(1).click();
        return performance.now() - begin; }"""
    )
    print(f"sorting 5,000 rows took {took:.0f} ms")
    assert took < 300
    page.locator("#processes input[type=search]").fill("number 4321")
    assert rows.count() == 1
    assert page.locator("#processes .tools > span").inner_text() == "1 of 5,000 processes"


def cells(page: Page, column: str) -> list[str]:
    heads = page.locator("#processes thead th").all_inner_texts()
    place = [head.rstrip(" ▾▴") for head in heads].index(column)
    rows = page.locator("#processes tbody tr").all()
    return [row.locator("td").nth(place).inner_text() for row in rows]


def test_the_table_sorts_searches_and_lets_columns_be_chosen(page: Page) -> None:
    assert cells(page, "pid")[:3] == ["820", "800", "929"]
    assert cells(page, "peak RSS")[0] == "12.0 GiB ± 96.0 MiB"
    peaks = [amount(words) for words in cells(page, "peak RSS")]
    assert peaks == sorted(peaks, reverse=True)
    page.locator("#processes th button", has_text="peak RSS").click()
    assert cells(page, "pid")[-2:] == ["800", "820"]
    page.locator("#processes th button", has_text="name").click()
    assert cells(page, "name") == sorted(cells(page, "name"))
    page.keyboard.press("Enter")
    assert cells(page, "name") == sorted(cells(page, "name"), reverse=True)
    page.locator("#processes summary", has_text="columns").click()
    page.locator("#processes .menu").get_by_label("command line").check()
    assert "/usr/bin/helper 3" in cells(page, "command line")
    page.locator("#processes input[type=search]").fill("oom")
    assert cells(page, "pid") == ["820"]


@pytest.mark.parametrize("width", [700, 1280])
def test_how_a_process_ended_stands_on_one_line(open_page: Opener, width: int) -> None:
    page = open_page(documents.ordinary(), viewport={"width": width, "height": 800})
    table = page.locator("#processes")
    table.locator("summary", has_text="columns").click()
    table.get_by_label("command line").check()
    assert "SIGKILL (OOM killer)" in cells(page, "ended")
    place = page.locator("#processes thead th").all_inner_texts().index("ended") + 1
    assert broken(page, f"#processes td:nth-child({place}) bdi") == []


def test_the_table_is_saved_as_it_stands(page: Page, tmp_path: Path) -> None:
    page.locator("#processes input[type=search]").fill("vllm")
    lines = saved(page, "#processes", tmp_path)
    assert lines[0].startswith("pid,name,peak RSS,reached")
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["820", "vLLM worker TP0", str(12 * GIB)],
        ["800", "vLLM API server", str(2 * GIB)],
    ]


def widths(cells: Locator) -> dict[str, tuple[float, float, float]]:
    """Left, width and top of cells by their names."""
    found = {}
    for cell in cells.all():
        box = cell.bounding_box()
        label = cell.get_attribute("aria-label") or ""
        assert box is not None
        found[label.split(":")[0]] = (box["x"], box["width"], box["y"])
    return found


def test_the_parts_of_the_ledger_are_as_wide_as_their_amounts(page: Page) -> None:
    drawn = widths(page.locator("#ledger .icicle button"))
    whole = drawn["in use in /pod/trainer"]
    expected = 14 * GIB * 3 // 4 + 3 * GIB + 612 * MIB
    for name, held in [("anonymous memory", 14 * GIB * 3 // 4), ("shared objects", 2 * GIB)]:
        assert drawn[name][1] == pytest.approx(whole[1] * held / expected, abs=1.5)
    below = [box for box in drawn.values() if box[2] == drawn["anonymous memory"][2]]
    assert sum(box[1] for box in below) == pytest.approx(whole[1], abs=3), "it adds up"
    assert drawn["vLLM worker TP0 820"][0] == pytest.approx(whole[0], abs=1)
    assert "/dev/shm/psm_1" in drawn
    page.locator("#ledger .icicle button", has_text="shared objects").first.click()
    opened = widths(page.locator("#ledger .icicle button"))
    assert opened["/dev/shm/psm_1"][1] == pytest.approx(whole[1], abs=2)
    page.keyboard.press("Escape")
    assert widths(page.locator("#ledger .icicle button")).keys() == drawn.keys()


def test_the_ledger_is_that_of_the_instant_that_is_chosen(page: Page, tmp_path: Path) -> None:
    lines = saved(page, "#ledger", tmp_path)
    top = [line.split(",") for line in lines[1:] if line.startswith("1,")]
    whole = next(line.split(",") for line in lines if line.startswith("0,"))
    assert sum(int(line[2]) for line in top) == int(whole[2])
    page.locator("#ledger select").first.select_option(
        label="the OOM kill of vLLM worker TP0 (+1m40s)"
    )
    assert "vLLM API server 800" not in widths(page.locator("#ledger .icicle button"))


def test_stacks_are_as_wide_as_what_they_hold_and_can_be_searched(page: Page) -> None:
    cells = page.locator("#stacks .icicle button")
    drawn = widths(cells)
    whole = drawn["resident memory, by samples"]
    for name, mib in [("loop.py", 1_000), ("feeder 830", 200), ("malloc (libc.so.6)", 600)]:
        assert drawn[name][1] == pytest.approx(whole[1] * mib / 1_200, abs=1.5)
    page.locator("#stacks input[type=search]").fill("LOOP.py")
    assert page.locator("#stacks [role=status]").inner_text() == "1.0 GiB, 83%"
    found = page.locator("#stacks .icicle button.found")
    assert [cell.inner_text().split(" ")[0] for cell in found.all()] == ["loop.py:40"]
    page.locator("#stacks input[type=search]").fill("")
    assert page.locator("#stacks [role=status]").inner_text() == ""
    of = page.locator("#stacks select").last
    of.select_option(label="feeder 830 (200 MiB)")
    assert list(widths(cells)) == ["feeder 830", "grow (libfeed.so)"]
    page.locator("#stacks select").first.select_option(label="at the peak")
    assert widths(cells)["feeder 831"][1] == pytest.approx(whole[1] / 2, abs=1.5)
    assert of.locator("option").all_inner_texts()[1:] == [
        "feeder 830 (200 MiB)",
        "feeder 831 (200 MiB)",
    ]


def test_phases_show_begin_end_and_change_of_host_and_gpu(shown: Page) -> None:
    rows = shown.locator("#phases table.waterfall > tbody > tr")
    load = rows.nth(0)
    assert load.locator(":scope > td").all_inner_texts()[1:3] == ["+20.0s", "42.0s"]
    words = [bar.get_attribute("aria-label") for bar in load.locator(".bar").all()]
    assert words == [
        "1.0 GiB to 14.0 GiB, +13.0 GiB, highest 14.0 GiB",
        "2.0 GiB to 42.0 GiB, +40.0 GiB, highest 42.0 GiB",
    ]
    bar = load.locator(".bar").first.bounding_box()
    grew = load.locator(".bar .grew").first.bounding_box()
    assert bar is not None and grew is not None
    assert grew["width"] == pytest.approx(bar["width"] * 13 / 14, abs=1.5)
    load.locator("summary").click()
    assert "+12.0 GiB" in load.locator("details table").inner_text()


def test_steps_have_a_picture_with_the_slope_of_the_report(shown: Page, tmp_path: Path) -> None:
    card = shown.locator("#steps figure")
    assert "host +1.5 MiB a step (+1.0 MiB to +2.0 MiB)" in card.inner_text()
    assert card.locator("circle").count() == 10
    assert card.locator("line").count() == 1
    lines = saved(shown, "#steps", tmp_path)
    assert lines[1] == f"step_<N>,0,73,{14 * GIB}"


def numbered(name: str, bands: list[Json]) -> Json:
    """The ordinary recording with another stage, of steps from 500 on."""
    made = documents.ordinary()
    line = made["report"]["phases"]["lines"][1]
    line["name"] = name
    line["steps"].update(first=500, last=509)
    line["steps"]["tree"].update(first_step=502, last_step=509)
    made["bands"] = bands
    return made


def test_steps_are_those_that_the_report_numbers_whatever_they_are_called(
    open_page: Opener, tmp_path: Path
) -> None:
    # Two ranks pass each step, of which one has ended at 10 s and the other at 30 s.
    ends = [10, 30]
    bands = [
        band("rollout", SECOND, end * SECOND, "rollout", step)
        for step in range(500, 510)
        for end in ends
    ]
    others = [band("rollout", SECOND, 2 * SECOND), band("7", SECOND, 2 * SECOND, "<N>", 7)]
    page = open_page(numbered("rollout", [*others, *bands]))
    card = page.locator("#steps figure")
    assert card.locator("circle").count() == 10
    assert card.locator("line").count() == 1, "the slope goes through the steps"
    held = [2 * GIB * end // 40 + max(0, 12 * GIB * (end - 20) // 40) for end in ends]
    rows = [f"rollout,{step},30,{sum(held) // 2}" for step in range(500, 510)]
    assert saved(page, "#steps", tmp_path)[1:] == rows


def test_a_name_full_of_places_for_numbers_costs_no_time(open_page: Opener) -> None:
    name = "<N>" * 12 + "x_<N>"
    bands = [band("1" * 60 + "y", SECOND, 2 * SECOND, name, step) for step in range(3)]
    page = open_page(numbered(name, bands))
    assert page.locator("#steps circle").count() == 3


def test_two_recordings_are_aligned_as_the_reader_chooses(open_page: Opener) -> None:
    page = open_page(documents.compared())
    rows = page.locator("#compare table tr").all_inner_texts()
    assert any(
        row.split("\t")[:5] == ["vLLM worker", "1 → 2", "10.0 GiB", "12.0 GiB", "+2.0 GiB"]
        for row in rows
    )
    assert "these are sums of RSS" in page.locator("#compare").inner_text()
    titles = page.locator("#compare table th").all_inner_texts()
    assert titles[2:4] == ["RSS peak before", "RSS peak after"]
    options = page.locator("#compare option").all_inner_texts()
    assert options[:4] == ["the start", "the peak", "load_model", "serve"]
    page.locator("#compare .chart").evaluate("(chart) => { chart.dataset.first = 'true'; }")
    page.locator("#compare select").select_option(label="the peak")
    settle(page)
    drawn = plot(page, "#compare")
    page.mouse.move(drawn.x(0.5), drawn.box["y"] + 40)
    settle(page)
    assert page.locator("#compare .readout .when").inner_text().startswith("+0")
    assert readout(page, "#compare") == {"before": "14.0 GiB", "after": "14.0 GiB"}
    assert readout(page)["memory held, every page once"] == "14.0 GiB", "the other charts rest"
    assert page.locator("#compare [data-first]").count() == 1, "no chart is left behind"


def test_before_its_begin_nothing_is_known_of_a_recording(open_page: Opener) -> None:
    made = documents.compared()
    made["other"]["report"]["peak"]["at"] = instant(30 * SECOND)
    page = open_page(made)
    page.locator("#compare select").select_option(label="the peak")
    settle(page)
    drawn = plot(page, "#compare")
    # From 60 s before the peak of the later to 90 s after that of the earlier.
    page.mouse.move(drawn.x(0.1), drawn.box["y"] + 40)
    settle(page)
    assert when(page, "#compare").startswith("-45")
    values = readout(page, "#compare")
    assert values["before"] == "?"
    assert values["after"] != "?"
    page.mouse.move(drawn.x(0.9), drawn.box["y"] + 40)
    settle(page)
    values = readout(page, "#compare")
    assert values["before"] != "?"
    assert values["after"] == "?"


def test_what_is_recorded_stands_in_words_and_never_as_json(open_page: Opener) -> None:
    words = f"processes that match {'|'.join(f'worker-{number}' for number in range(30))}"
    about = open_page({**documents.ordinary(), "target": words}).locator("#about").inner_text()
    assert "gpu-node-7" in about and words in about and '{"' not in about


def test_the_last_panel_has_losses_cost_host_and_the_text(shown: Page) -> None:
    about = shown.locator("#about")
    for words in [
        "3 events were lost",
        "gpu-node-7",
        "vllm serve model",
        "0.64% of one CPU",
        "33.0 MiB",
    ]:
        assert words in about.inner_text()
    about.locator("summary", has_text="Full text").click()
    assert about.locator("#plain").is_visible()
