"""The standard library's."""

from multiprocessing import Event, Process, Queue, set_start_method

__all__ = ["Event", "Process", "Queue", "set_start_method"]
