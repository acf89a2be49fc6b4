"""Reads a recording: its files, its tables, and what follows from them."""
