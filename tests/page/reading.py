"""What a reader sees of the page: words beside a chart, and pixels in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page


@dataclass
class Plot:
    """A chart's plotting area, on the screen and in the canvas."""

    chart: Locator

    @property
    def box(self) -> dict[str, float]:
        box = self.chart.locator(".u-over").bounding_box()
        assert box is not None
        return {side: box[side] for side in ("x", "y", "width", "height")}

    def x(self, part: float) -> float:
        return self.box["x"] + self.box["width"] * part

    def columns(self, colour: str) -> list[int | None]:
        """How high pixels of a colour reach above the bottom, for each column of pixels."""
        heights: list[int | None] = self.chart.evaluate(HEIGHTS, colour)
        return heights

    def is_blank(self) -> bool:
        return all(colour == [0, 0, 0, 0] for colour in self.colours())

    def colours(self) -> list[list[int]]:
        found: list[list[int]] = self.chart.evaluate(COLOURS)
        return found

    def drag(self, page: Page, start: float, end: float) -> None:
        """Drags from one part of the width to another, and waits for the next picture."""
        middle = self.box["y"] + self.box["height"] / 2
        page.mouse.move(self.x(start), middle)
        page.mouse.down()
        page.mouse.move(self.x(end), middle, steps=4)
        page.mouse.up()
        settle(page)


def plot(page: Page, where: str = "#memory") -> Plot:
    chart = page.locator(f"{where} .chart").first
    chart.scroll_into_view_if_needed()
    return Plot(chart)


def settle(page: Page) -> None:
    """Until two more frames are drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def readout(page: Page, where: str = "#memory") -> dict[str, str]:
    """The amounts beside a chart by their names, in the order in which they stand."""
    rows = page.locator(f"{where} .readout").first.locator("li").all()
    return {row.locator(".name").inner_text(): row.locator(".amount").inner_text() for row in rows}


def when(page: Page, where: str = "#memory") -> str:
    return page.locator(f"{where} .readout .when").first.inner_text()


def in_full(page: Page, name: str, where: str = "#memory") -> str:
    """What the readout has for a name, in full."""
    row = page.locator(f"{where} .readout").first.locator("li").filter(has_text=name).first
    return row.locator(".amount").get_attribute("title") or ""


def exact(page: Page, name: str, where: str = "#memory") -> int:
    """The bytes that the readout has for a name, to the byte."""
    return int(in_full(page, name, where).removesuffix(" bytes").replace(",", ""))


def saved(page: Page, where: str, tmp_path: Path) -> list[str]:
    """The lines of the CSV of a picture."""
    with page.expect_download() as download:
        page.locator(f"{where} button", has_text="CSV").first.click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    return file.read_bytes().decode().split("\r\n")[:-1]


def broken(page: Page, where: str) -> list[str]:
    """The texts that go over more than one line."""
    found: list[str] = page.locator(where).evaluate_all(BROKEN)
    return found


BROKEN = """
(all) => all.filter((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
}).map((one) => one.textContent)
"""
HEIGHTS = """
(chart, colour) => {
  const [canvas, over] = [chart.querySelector('canvas'), chart.querySelector('.u-over')];
  const ratio = devicePixelRatio;
  const [left, top] = [over.offsetLeft * ratio, over.offsetTop * ratio];
  const [width, height] = [over.clientWidth * ratio, over.clientHeight * ratio];
  const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, -left, -top);
  const pixels = copy.getImageData(0, 0, width, height).data;
  const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return Array.from({ length: width }, (_, x) => {
    for (let y = 0; y < height; y += 1) {
      const at = (y * width + x) * 4;
      const isNear = (channel, place) => Math.abs(pixels[at + place] - channel) < 12;
      if (wanted.every(isNear)) return height - y;
    }
    return null;
  });
}
"""
COLOURS = """
(chart) => {
  const canvas = chart.querySelector('canvas');
  const empty = new OffscreenCanvas(canvas.width, canvas.height);
  const copy = empty.getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let at = 0; at < pixels.length; at += 4) found.add(pixels.slice(at, at + 4).join());
  return [...found].map((colour) => colour.split(',').map(Number));
}
"""
