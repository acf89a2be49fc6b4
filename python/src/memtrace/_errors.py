"""What readers of a recording raise."""

from __future__ import annotations


class FindingsError(RuntimeError, AttributeError):
    """What the report found is not saved beside the recording, can't be read, or is of another
    state of it. As an `AttributeError` it makes `hasattr(recording, "phase")` false."""
