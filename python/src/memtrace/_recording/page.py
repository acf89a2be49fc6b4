"""The page of the report, made by the program `memtrace` and shown in a notebook."""

from __future__ import annotations

import html
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from .. import _program as program


class Page(NamedTuple):
    """A page that is complete in itself: it loads nothing."""

    html: str
    """Its text."""

    @classmethod
    def of(cls, recording: Path | str) -> Page:
        """Has the page made of the recording in a directory, or at an address. `FileNotFoundError`
        without the program, `RuntimeError` with its words where it fails."""
        # A name that begins with `-` would be an option.
        given = recording if isinstance(recording, str) else os.path.join(".", recording)
        words = [program.path(), "report", "--format", "html", given]
        made = subprocess.run(words, capture_output=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(made.stderr.decode(errors="replace").strip())
        return cls(made.stdout.decode())

    def _repr_html_(self) -> str:
        """In a frame of its own: its script sees nothing of the notebook."""
        return (
            '<iframe sandbox="allow-scripts allow-downloads" '
            'style="width: 100%; height: 80vh; border: 0" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Page of {len(self.html):,} characters; a notebook shows it>"
