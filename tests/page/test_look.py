"""How the page looks: hostile names, dark, paper."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page

import documents
from conftest import Opener
from reading import broken, plot, saved, settle


def brightness(page: Page) -> float:
    colours = plot(page).colours()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours
    return float(sum(int(part) for part in ground.strip("rgb()").split(",")[:3]) / 3)


def test_hostile_names_stay_text(open_page: Opener, tmp_path: Path) -> None:
    page = open_page(documents.hostile())
    assert page.locator("h1").inner_text() == "</script><script>window.hurt=1</script>"
    text = page.locator("body").inner_text()
    assert "\\u{202e}gnirts desrever\\u{2066}" in text
    assert "\\x1b[31mred\\x07\\n\\tline" in text
    for hidden in ["\u202e", "\u2066", "\u200b", "\ufeff", "\x1b", "\x07"]:
        assert hidden not in page.content()
    assert page.locator("img, iframe, object, embed, link").count() == 0
    assert page.locator("main script, main style, main svg[onload]").count() == 0
    for part in ["#memory", "#processes", "#lanes", "#ledger", "#phases"]:
        lines = saved(page, part, tmp_path)
        assert not any(cell.startswith("=") for line in lines for cell in line.split(","))
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280, "a long name"


@pytest.mark.parametrize("width", [500, 800])
def test_a_narrow_window_has_no_sideways_scrolling(open_page: Opener, width: int) -> None:
    page = open_page(documents.ordinary(), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not plot(page).is_blank()


@pytest.mark.parametrize("width", [320, 500, 1280])
def test_a_command_is_code_and_breaks_between_words_only(open_page: Opener, width: int) -> None:
    page = open_page(documents.ordinary(), viewport={"width": width, "height": 800})
    code = page.locator("header code")
    assert code.inner_text() == "memtrace report --phase 'load `one` model'"
    line = page.locator("header p", has=page.locator("code"))
    assert line.inner_text() == f"Look next: {code.inner_text()} for each role."
    assert broken(page, "header code .word") == []


def test_dark_follows_the_system_also_later(open_page: Opener) -> None:
    page = open_page(documents.ordinary(), color_scheme="dark")
    assert brightness(page) < 60
    assert any(plot(page).columns("#3d9be0")), "the worker's colour on dark ground"
    page.emulate_media(color_scheme="light")
    settle(page)
    assert brightness(page) > 200
    assert any(plot(page).columns("#0072b2"))


def swatches(page: Page, by: str) -> dict[str, str]:
    """The colours of layers by their names."""
    page.locator("#memory").get_by_label(by, exact=True).check()
    pairs = page.locator("#memory .readout button").evaluate_all(
        "(all) => all.map((one) => [one.innerText, "
        "getComputedStyle(one.querySelector('.swatch')).backgroundColor])"
    )
    return dict(pairs)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_colour_means_one_thing(open_page: Opener, scheme: Literal["light", "dark"]) -> None:
    made = documents.ordinary()
    _, held = made["curves"]["stacks"][0]["series"]
    pods = [{**held, "id": "pod", "name": "/pod/trainer"}]
    made["curves"]["stacks"].append({**made["curves"]["stacks"][0], "by": "cgroup", "series": pods})
    # A process that had another role before.
    made["report"]["roles"].append({"name": "loader", "upids": [1_000_820]})
    made["flames"][1].update(name="worker 820", upid=1_000_820)
    page = open_page(made, color_scheme=scheme)
    kinds, roles = swatches(page, "kind of memory"), swatches(page, "role")
    names = {*roles.values(), *swatches(page, "cgroup").values()}
    assert len(names) == 3
    assert names.isdisjoint(kinds.values())
    ledger = dict(backgrounds(page, "#ledger"))
    assert ledger["anonymous memory"] == kinds["anonymous"]
    assert ledger["shared objects"] == kinds["shared memory"]
    assert ledger["vLLM worker TP0 820"] == roles["vLLM worker"]
    stacks = dict(backgrounds(page, "#stacks"))
    assert stacks["worker 820"] == roles["vLLM worker"]
    assert stacks["vllm 820"] not in {*names, *kinds.values()}, "a process without a role"
    changes = page.locator("#phases .bar .grew").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert changes and names.isdisjoint(changes)


def backgrounds(page: Page, part: str) -> list[tuple[str, str]]:
    """The colours of an icicle's cells by their names."""
    pairs: list[tuple[str, str]] = page.locator(f"{part} .icicle button").evaluate_all(
        "(all) => all.map((one) => [one.getAttribute('aria-label').split(':')[0], "
        "getComputedStyle(one).backgroundColor])"
    )
    return pairs


def test_on_paper_it_is_light_without_tools(open_page: Opener) -> None:
    page = open_page(documents.ordinary(), color_scheme="dark")
    # What the browser does when it prints.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    settle(page)
    assert brightness(page) > 200
    assert any(plot(page).columns("#0072b2"))
    assert page.locator("button", has_text="CSV").first.is_hidden()
    assert page.locator("nav").is_hidden()
    assert len(page.pdf()) > 20_000
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    settle(page)
    assert brightness(page) < 60


def test_without_scripts_the_text_is_there(open_page: Opener, tmp_path: Path) -> None:
    page = open_page(documents.ordinary())
    file = tmp_path / "page0.html"
    browser = page.context.browser
    assert browser is not None
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(file.as_uri())
    assert plain.locator("#plain").is_visible()
    plain.close()
