"""A page for a document: one that memtrace wrote, with the document in place of its own."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import zlib
from functools import cache
from pathlib import Path

from encoding import Json

SOURCES = Path(__file__).parents[2] / "crates/page/src"
GOLDEN = Path(os.environ["MEMTRACE_GOLDEN_DIR"])
DATA = re.compile(r'(<script id="data" type="application/octet-stream;base64">)[^<]*')


def write(name: str, file: Path) -> None:
    """Has memtrace write the page of a recording."""
    # By its name alone, so that no path of this machine gets into a picture.
    command = [os.environ["MEMTRACE_PROGRAM"], "report", name, "-f", "html", "-o", str(file)]
    subprocess.run(command, check=True, capture_output=True, cwd=GOLDEN)


def write_run(name: str, file: Path, *words: str, parts: str | None = None) -> Json:
    """Has memtrace write the page of a golden job, or of these parts, and gives its JSON."""
    lines = (GOLDEN / f"{name}.parts").read_text() if parts is None else parts
    command = [os.environ["MEMTRACE_PROGRAM"], "report", "--merge", "-", "--root", "root"]
    command += [*words, "-f"]
    for form, to in (("html", ["-o", str(file)]), ("json", [])):
        done = subprocess.run(
            [*command, form, *to], check=True, capture_output=True, input=lines, text=True
        )
    found: Json = json.loads(done.stdout)
    return found


@cache
def shell() -> str:
    command = [os.environ["MEMTRACE_PROGRAM"], "report", "nothing", "-f", "html"]
    done = subprocess.run(command, check=True, capture_output=True, cwd=GOLDEN, text=True)
    return done.stdout


def packed(document: Json) -> str:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
    text = json.dumps(document).encode()
    return base64.b64encode(squeeze.compress(text) + squeeze.flush()).decode()


def page(document: Json) -> str:
    made, count = DATA.subn(lambda found: found[1] + packed(document), shell())
    assert count == 1
    return made
