"""A real browser, and a page in it that must say nothing on the console and ask for nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from assemble import page as assembled
from encoding import Json
from ordinary import ordinary
from reading import settle

CHROMIUM = os.environ.get("MEMTRACE_CHROMIUM", "/usr/bin/chromium")
Opener = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root, as which CI runs, has no sandbox.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def opening(browser: Browser, folder: Path) -> Iterator[Opener]:
    heard: list[str] = []
    opened: list[Page] = []

    def opener(document: Json | None = None, *, file: Path | None = None, **options: Any) -> Page:
        if file is None:
            assert document is not None
            file = folder / f"page{len(opened)}.html"
            file.write_text(assembled(document), encoding="utf-8")
        shown = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        opened.append(shown)
        shown.on("console", lambda message: heard.append(f"console: {message.text}"))
        shown.on("pageerror", lambda error: heard.append(f"error: {error}"))
        shown.on("request", lambda request: heard.append(request.url))
        shown.add_init_script(WATCH)
        shown.goto(file.as_uri())
        shown.wait_for_selector("html[data-ready]")
        heard.remove(file.as_uri())
        return shown

    yield opener
    for shown in opened:
        shown.wait_for_timeout(50)
        hurt = shown.evaluate("window.hurt")
        assert hurt is None, f"a name became markup: {hurt}"
        shown.close()
    assert heard == []


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens the page of a document, or a file; what it says or asks for fails the test."""
    with opening(browser, tmp_path) as opener:
        yield opener


@pytest.fixture(scope="module")
def common(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opening(browser, tmp_path_factory.mktemp("common")) as opener:
        yield opener(ordinary())


@pytest.fixture
def shown(common: Page) -> Page:
    """The ordinary page, for tests that look at it and point at it, and change nothing."""
    common.mouse.move(1, 1)
    settle(common)
    return common


# Notes the frame in which the main chart stands, whatever the page does of its own.
WATCH = """
(() => {
  const look = () => {
    const chart = document.querySelector('#memory canvas, #memory .alert');
    if (chart) requestAnimationFrame((now) => { window.drawnAt = now; });
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""
