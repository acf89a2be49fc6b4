"""A spike of 5 ms in ten hours stands at its full height, however far one is zoomed in."""

from __future__ import annotations

import documents
from conftest import Opener
from encoding import GIB
from reading import exact, plot, settle

LOADER = "#e69f00"


def test_a_short_spike_keeps_its_height_at_every_zoom(open_page: Opener) -> None:
    page = open_page(documents.spike())
    drawn = plot(page)
    # 10 h, 1 h, 6 min, 36 s, 3.6 s, 0.36 s, 36 ms.
    for zoom in range(7):
        heights = [height or 0 for height in drawn.columns(LOADER)]
        place = heights.index(max(heights))
        base = sorted(heights)[len(heights) // 2]
        # 12 GiB over 3 GiB; the line on their edge covers a pixel.
        assert abs(heights[place] - 4 * base) <= 6, f"zoom {zoom}: {heights[place]} over {base}"
        wide = sum(height > 2 * base for height in heights)
        expected = 0.005 / (36_000 * 0.1**zoom) * len(heights)
        assert expected - 3 <= wide <= expected + 3, f"zoom {zoom}: {wide} columns"
        part = (place + 0.5) / len(heights)
        if zoom < 6:
            drawn.drag(page, max(0.0, part - 0.05), min(1.0, part + 0.05))
    page.mouse.move(drawn.x((heights.index(max(heights)) + 20) / len(heights)), drawn.box["y"] + 50)
    settle(page)
    assert exact(page, "loader") == 10 * GIB
