"""The main chart: exact values at the cursor, zoom, the pinned instant, keys, CSV."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

import documents
from conftest import Opener
from encoding import GIB, MIB, SECOND, document, gaps, series, stack
from reading import exact, plot, readout, saved, settle, when


@pytest.fixture
def page(open_page: Opener) -> Page:
    return open_page(documents.ordinary())


# A little more than the page waits for the second of two clicks.
LONGER_THAN_TWO_CLICKS = 350


def cursor(page: Page) -> float:
    box = page.locator("#memory .u-cursor-x").bounding_box()
    assert box is not None
    return box["x"]


def point(page: Page, part: float, where: str = "#memory") -> None:
    drawn = plot(page, where)
    page.mouse.move(drawn.x(part), drawn.box["y"] + 40)
    settle(page)


def test_at_rest_the_values_of_the_peak_are_read(shown: Page) -> None:
    assert when(shown) == "at the peak: +60.0s"
    assert shown.get_by_text("12:02:44.000 UTC").first.is_visible()
    assert list(readout(shown).items()) == [
        ("memory held, every page once", "14.0 GiB"),
        ("limit, cgroup /pod/trainer", "16.0 GiB"),
        ("used, cgroup /pod/trainer", "13.0 GiB since +0s"),
        ("vLLM worker", "12.0 GiB"),
        ("vLLM API server", "2.0 GiB"),
    ]


def test_the_cursor_reads_the_exact_values_the_largest_first(shown: Page) -> None:
    # At a quarter of the time the worker has run for 10 s of its 40, and the server for 30.
    point(shown, 0.2505)
    assert when(shown).startswith("+30.")
    server, worker = 30 * 2 * GIB // 40, 10 * 12 * GIB // 40
    assert exact(shown, "vLLM worker") == worker
    assert exact(shown, "vLLM API server") == server
    assert exact(shown, "memory held") == server + worker
    layers = [name for name in readout(shown) if name.startswith("vLLM")]
    assert layers == ["vLLM worker", "vLLM API server"]
    point(shown, 0.17)
    layers = [name for name in readout(shown) if name.startswith("vLLM")]
    assert layers == ["vLLM API server", "vLLM worker"]


def test_the_cursor_is_on_all_charts_and_names_phase_and_flag(shown: Page) -> None:
    point(shown, 0.8335)
    assert readout(shown, "#gpus")["vLLM worker TP0 820"] == "20.0 GiB"
    assert when(shown, "#gpus") == when(shown)
    words = shown.locator("#memory .extra").inner_text()
    assert "serve" in words
    assert "OOM killer killed vLLM worker TP0" in words


def test_the_stack_can_be_of_kinds_and_processes(page: Page) -> None:
    page.get_by_label("kind of memory").check()
    assert set(readout(page)) >= {"anonymous", "shared memory"}
    total = exact(page, "anonymous") + exact(page, "shared")
    assert total == exact(page, "memory held") == 14 * GIB
    page.get_by_label("process", exact=True).check()
    assert "vLLM worker TP0 820" in readout(page)


def test_lines_can_be_switched_on_and_off(page: Page) -> None:
    assert "swapped out" not in readout(page)
    page.get_by_label("swapped out").check()
    assert readout(page)["swapped out"] == "1.0 MiB"
    page.get_by_label("limit, cgroup").uncheck()
    assert "limit, cgroup /pod/trainer" not in readout(page)


def test_a_hidden_series_leaves_the_stack(page: Page) -> None:
    worker = "#0072b2"
    assert max(height or 0 for height in plot(page).columns(worker)) > 100
    page.locator("#memory .readout button", has_text="vLLM worker").click()
    settle(page)
    assert not any(plot(page).columns(worker))
    page.keyboard.press("Enter")
    settle(page)
    assert any(plot(page).columns(worker)), "the button kept the focus, and shows it again"


def test_a_drag_zooms_every_picture_and_a_double_click_shows_all(page: Page) -> None:
    drawn = plot(page)
    drawn.drag(page, 0.25, 0.5)
    point(page, 0.0)
    assert when(page).startswith("+30.0")
    point(page, 0.999)
    assert when(page).startswith(("+59.9", "+60.0"))
    point(page, 0.0, "#gpus")
    assert when(page, "#gpus").startswith("+30.0")
    page.mouse.dblclick(drawn.x(0.5), plot(page).box["y"] + 50)
    settle(page)
    point(page, 0.999)
    assert when(page).startswith(("+1m59", "+2m00"))


@pytest.mark.parametrize("where", ["#memory .chart .u-over", "#lanes .lanes"])
def test_a_double_click_pins_nothing_and_lets_what_is_pinned_be(page: Page, where: str) -> None:
    picture = page.locator(where)
    picture.scroll_into_view_if_needed()
    picture.dblclick()
    page.wait_for_timeout(LONGER_THAN_TWO_CLICKS)
    assert page.locator("#pinned").is_hidden()
    picture.click()
    heading = page.locator("#pinned h2")
    heading.wait_for()
    pinned = heading.inner_text()
    # Where a second click comes so late that the first has pinned already.
    picture.click(position={"x": 200, "y": 20}, click_count=2, delay=LONGER_THAN_TWO_CLICKS)
    page.wait_for_timeout(LONGER_THAN_TWO_CLICKS)
    assert heading.inner_text() == pinned


def test_the_readout_tells_more_digits_and_the_cursor_stays_as_one_zooms_in(page: Page) -> None:
    page.locator("#memory .chart").focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    settle(page)
    assert when(page) == "+24.0s"
    place = cursor(page)
    # Far beyond the shortest stretch.
    for _ in range(60):
        page.keyboard.press("+")
    settle(page)
    assert when(page) == "+24.000000000s"
    assert cursor(page) == pytest.approx(place, abs=1.5)


def test_a_click_pins_an_instant_with_its_composition_and_the_nearest_ledger(page: Page) -> None:
    drawn = plot(page)
    page.mouse.click(drawn.x(0.5), drawn.box["y"] + 50)
    pinned = page.locator("#pinned")
    pinned.wait_for()
    assert pinned.locator("h2").inner_text().startswith("Held at +60.0")
    first = pinned.locator("table").first
    assert "vLLM worker" in first.inner_text()
    assert "14.0 GiB" in first.locator("tr").last.inner_text()
    assert "The nearest ledger in the report is of the peak" in pinned.inner_text()
    assert pinned.locator(".icicle button").count() > 5
    page.mouse.click(drawn.x(0.75), plot(page).box["y"] + 50)
    page.wait_for_timeout(LONGER_THAN_TWO_CLICKS)
    # 90 s is nearer to the kill at 100 s than to the peak at 60 s.
    assert "of the OOM kill of vLLM worker TP0" in pinned.inner_text()
    assert "later" in pinned.inner_text()
    page.keyboard.press("Escape")
    settle(page)
    assert not pinned.is_visible()


def test_keys_move_the_cursor_pin_zoom_and_show_all(page: Page) -> None:
    page.locator("#memory .chart").focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    settle(page)
    assert when(page).startswith("+24.0")
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert when(page).startswith("+23.7")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("#pinned h2").inner_text().startswith("Held at +23.7")
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.keyboard.press("End")
    settle(page)
    # Around +23.7 s a quarter of the two minutes is in view.
    assert float(when(page).split("s")[0].strip("+")) == pytest.approx(23.7 * 3 / 4 + 30, abs=0.5)
    page.keyboard.press("0")
    page.keyboard.press("End")
    settle(page)
    assert when(page).startswith("+2m00")
    page.keyboard.press("Escape")
    settle(page)
    assert not page.locator("#pinned").is_visible()


def test_everything_can_be_reached_by_tab_in_the_order_of_the_page(page: Page) -> None:
    reached: list[str] = []
    for _ in range(200):
        page.keyboard.press("Tab")
        part = page.evaluate(
            "document.activeElement.closest('section')?.id ?? document.activeElement.tagName"
        )
        if not reached or reached[-1] != part:
            reached.append(part)
        if part == "BODY":
            break
    sections = ["memory", "gpus", "lanes", "ledger", "stacks", "phases", "steps", "processes"]
    assert reached[:9] == ["A", *sections]
    unnamed = page.locator("button, input, select, [role=application]").evaluate_all(
        "(all) => all.filter((one) =>"
        " !(one.ariaLabel || one.textContent || one.labels?.length)).length"
    )
    assert unnamed == 0


def test_the_data_of_the_chart_is_saved_as_csv(shown: Page, tmp_path: Path) -> None:
    lines = saved(shown, "#memory", tmp_path)
    names = ["vLLM worker_bytes", "vLLM API server_bytes", '"memory held, every page once_bytes"']
    limits = [f'"{what}, cgroup /pod/trainer_bytes"' for what in ("limit", "used")]
    lines_too = ["sum of RSS_bytes", "swapped out_bytes", *limits]
    assert lines[0] == ",".join(["offset_s", *names, *lines_too])
    assert len(lines) == 1 + 61
    held = [3 * GIB, 3 * GIB // 2, 9 * GIB // 2, 9 * GIB // 2 * 8 // 7, MIB]
    assert lines[1 + 15] == ",".join(map(str, [30, *held, 16 * GIB, 13 * GIB]))
    gpus = saved(shown, "#gpus", tmp_path)
    assert gpus[0] == "device,offset_s,series,bytes"
    assert f"GPU 1 NVIDIA H100,30,vLLM worker TP0,{20 * GIB}" in gpus
    assert f"GPU 1 NVIDIA H100,30,used,{21 * GIB}" in gpus


def test_unknown_stays_unknown(open_page: Opener) -> None:
    end = 10 * SECOND
    times = [0, 2 * SECOND, 4 * SECOND, end]
    known = series("a", "a", [MIB, None, 3 * MIB, 3 * MIB])
    by_role = stack("role", "by role", "held", [known])
    page = open_page(document(end, times, [by_role], curves={"lines": [known]}))
    point(page, 0.3)
    assert readout(page)["a"] == "?"
    point(page, 0.5)
    assert exact(page, "a") == 3 * MIB


def test_how_sure_what_is_held_is_stands_beside_it(open_page: Opener) -> None:
    end = 10 * SECOND
    times = [0, 4 * SECOND, end]
    held = series("held", "held", [4 * MIB, 4 * MIB, 4 * MIB])
    bounds = [
        series("below", "below", [0, MIB, 0]),
        series("above", "above", [0, 2 * MIB, 0]),
    ]
    by_role = stack("role", "by role", "held", [held])
    page = open_page(document(end, times, [by_role], curves={"lines": [held], "bounds": bounds}))
    beside = page.locator("#memory .readout .extra")
    point(page, 0.2)
    assert "held between" not in beside.inner_text()
    point(page, 0.7)
    assert "held between 3.0 MiB and 6.0 MiB" in beside.inner_text()


def test_bounds_that_read_alike_are_not_shown(open_page: Opener) -> None:
    end = 10 * SECOND
    times = [0, 4 * SECOND, end]
    held = series("held", "held", [40 * MIB, 40 * MIB, 40 * MIB])
    bounds = [series("below", "below", [0, 1024, 0]), series("above", "above", [0, 1024, 0])]
    by_role = stack("role", "by role", "held", [held])
    page = open_page(document(end, times, [by_role], curves={"lines": [held], "bounds": bounds}))
    point(page, 0.7)
    assert "held between" not in page.locator("#memory .readout .extra").inner_text()


def test_an_offset_is_rounded_before_it_is_cut_into_minutes(open_page: Opener) -> None:
    for millis, text in [(108_967, "1m49.0s"), (108_940, "1m48.9s"), (119_970, "2m00.0s")]:
        end = millis * SECOND // 1000
        by_role = stack("role", "by role", "held", [series("a", "a", [MIB, MIB])])
        page = open_page(document(end, [0, end], [by_role]))
        assert when(page) == f"at the end: +{text}"


def test_limits_and_gpus_are_unknown_before_they_are_first_read(open_page: Opener) -> None:
    made = documents.ordinary()
    late = [30 * SECOND, 90 * SECOND]
    made["curves"]["limits"][0].update(
        time_ns=gaps(late),
        used=series("used", "used, cgroup /pod", [0, 2 * GIB], before=None),
        limit=series("limit", "limit, cgroup /pod", [16 * GIB, 16 * GIB], before=None),
    )
    made["curves"]["gpus"][0].update(
        time_ns=gaps(late),
        used=series("used", "used", [GIB, GIB], before=None),
        series=[series("reserved", "reserved", [GIB, GIB], before=None)],
    )
    page = open_page(made)
    point(page, 0.2)
    assert readout(page)["limit, cgroup /pod"] == "?"
    assert readout(page)["used, cgroup /pod"] == "?"
    assert readout(page, "#gpus") == {
        "used": "?",
        "memory of the device": "80.0 GiB",
        "reserved": "?",
    }
    point(page, 0.3)
    assert readout(page)["limit, cgroup /pod"] == "16.0 GiB"
    used = readout(page)["used, cgroup /pod"]
    assert used == "0 B since +30.00s", "what was read as nothing is known"
    assert readout(page, "#gpus")["used"] == "1.0 GiB"


def test_the_ticks_of_an_axis_are_exact(open_page: Opener) -> None:
    end = 100 * SECOND
    held = [GIB, GIB + 512 * MIB]
    roles = [series("trainer", "trainer", held)]
    page = open_page(document(end, [0, 10 * SECOND], [stack("role", "by role", "held", roles)]))
    page.evaluate("""() => {
      window.drawn = [];
      const draw = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        window.drawn.push(text);
        return draw.call(this, text, ...rest);
      };
    }""")
    page.set_viewport_size({"width": 900, "height": 700})
    settle(page)
    ticks = {text for text in page.evaluate("window.drawn") if text.endswith("iB")}
    assert {"256 MiB", "1.0 GiB", "1.25 GiB", "1.5 GiB"} <= ticks
    assert "1.2 GiB" not in ticks


def drawn_words(page: Page) -> list[str]:
    """What is written into charts when all are drawn again."""
    page.evaluate(NOTE_WORDS)
    page.emulate_media(color_scheme="dark")
    settle(page)
    words: list[str] = page.evaluate("window.words")
    return words


NOTE_WORDS = """() => {
  window.words = [];
  const drawing = CanvasRenderingContext2D.prototype;
  const fillText = drawing.fillText;
  drawing.fillText = function (text, ...place) {
    window.words.push(text);
    fillText.call(this, text, ...place);
  };
}"""


@pytest.mark.parametrize(
    "others",
    [
        {"peak": [117], "exit": [120]},
        {"peak": [116], "loss": [112], "exit": [120]},
        {"exit": [119], "mark": [118, 117, 116]},
        {"oom": list(range(1, 120))},
    ],
)
def test_an_oom_kill_keeps_its_words_beside_other_flags(
    open_page: Opener, others: dict[str, list[int]]
) -> None:
    made = documents.ordinary()
    flags = [("oom", 119), *((kind, at) for kind, all_ in others.items() for at in all_)]
    made["flags"] = [{"at_ns": at * SECOND, "kind": kind, "text": kind} for kind, at in flags]
    words = drawn_words(open_page(made))
    assert "OOM kill" in words
    assert words.count("OOM kill") == 1, "and none covers another's"
