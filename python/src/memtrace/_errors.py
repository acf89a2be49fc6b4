"""What readers of a recording raise."""

from __future__ import annotations


class FindingsError(RuntimeError):
    """What the report found is not saved beside the recording, or is of another state of it."""
