"""Every document shows itself, whatever is in it, and says nothing on the console."""

from __future__ import annotations

import hashlib
import re

import pytest

import documents
from assemble import SOURCES
from conftest import Opener
from reading import plot

ALWAYS = ["memory", "about"]
WITHOUT_MEMORY = {"nothing"}


@pytest.mark.parametrize("name", documents.ALL)
def test_a_document_shows_its_answer_and_its_parts(name: str, open_page: Opener) -> None:
    document = documents.ALL[name]()
    page = open_page(document)
    assert page.locator("html").get_attribute("data-ready") == "true"
    assert page.locator("header p").count() >= len(document["answer"])
    for part in ALWAYS:
        assert page.locator(f"#{part}").is_visible()
    assert page.locator("#plain").count() == 1, "the text has a place"
    if name not in WITHOUT_MEMORY:
        assert not plot(page).is_blank()
        assert len(plot(page).colours()) > 6


def test_a_recording_that_was_cut_off_says_so_and_shows_what_there_is(open_page: Opener) -> None:
    page = open_page(documents.nothing())
    alerts = page.locator(".alert").all_inner_texts()
    assert any("was never closed" in alert for alert in alerts)
    assert any("part-3.parquet ends in the middle" in alert for alert in alerts)
    assert any("no row of memory" in alert for alert in alerts)
    assert page.locator("#about").get_by_text("gpu-node-7").first.is_visible()


def test_a_document_that_cannot_be_read_leaves_the_text_and_says_why(open_page: Opener) -> None:
    page = open_page({**documents.ordinary(), "version": 99})
    assert page.locator("html").get_attribute("data-ready") == "failed"
    assert "version 99" in page.locator("[role=alert]").inner_text()
    assert page.locator("#plain").is_visible()


def test_the_parts_stand_in_the_order_in_which_they_are_needed(open_page: Opener) -> None:
    page = open_page(documents.compared())
    parts = page.locator("section").evaluate_all("(all) => all.map((one) => one.id)")
    assert parts == [
        "compare",
        "memory",
        "pinned",
        "gpus",
        "lanes",
        "ledger",
        "stacks",
        "phases",
        "steps",
        "processes",
        "about",
    ]


def test_the_chart_library_is_the_one_that_its_readme_names() -> None:
    vendor = SOURCES / "vendor"
    stated = dict(
        re.findall(r"^\| (\S+) \| ([0-9a-f]{64}) \|$", (vendor / "README.md").read_text(), re.M)
    )
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in vendor.iterdir()
        if file.name != "README.md"
    }
    assert stated == found
