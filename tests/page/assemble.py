"""A page for a document: memtrace's own files around it, packed as memtrace packs it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from pathlib import Path

from encoding import Json

SOURCES = Path(__file__).parents[2] / "memtrace/src/page"


def script() -> str:
    """The script's files in the order that assets.rs states, in one scope."""
    listed = re.findall(r'include_str!\("(script/[^"]+)"\)', (SOURCES / "assets.rs").read_text())
    return (
        "(() => {\n'use strict';\n"
        + "".join((SOURCES / name).read_text() for name in listed)
        + "})();\n"
    )


def packed(document: Json) -> str:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
    text = json.dumps(document).encode()
    return base64.b64encode(squeeze.compress(text) + squeeze.flush()).decode()


def digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page(document: Json) -> str:
    charts = (SOURCES / "vendor/uPlot.iife.min.js").read_text()
    style = (SOURCES / "vendor/uPlot.min.css").read_text() + (SOURCES / "page.css").read_text()
    own = script()
    policy = (
        f"default-src 'none'; script-src {digest(charts)} {digest(own)}; "
        f"style-src {digest(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = html.escape(document["title"][:80])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>{style}</style></head>"
        '<body><main id="page"></main><div id="plain"><h2>Peak</h2><pre>as text</pre></div>'
        f'<script type="application/octet-stream;base64" id="data">{packed(document)}</script>'
        f"<script>{charts}</script><script>{own}</script></body></html>"
    )
