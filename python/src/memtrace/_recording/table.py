"""One table, in whichever form the person works with."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow


# A notebook shows so many rows of a table, and so much of a text.
_SHOWN_ROWS = 20
_SHOWN_TEXT = 80
_MIB = 1 << 20


def _cell(name: str, value: Any) -> str:
    """A value for a person. Null is unknown, so it is not written as anything."""
    if value is None:
        return ""
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / _MIB:,.1f} MiB"
    text = str(value)
    return html.escape(text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…")


def arrow() -> Any:
    """The module pyarrow, or a sentence that says how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "reading a recording needs pyarrow (pip install pyarrow); its Parquet files can "
            "be read with polars, duckdb or pandas directly"
        ) from error
    return pyarrow


class Table:
    """A table of a recording, or one that was made from them.

    Takes part in Arrow's C stream interface, so that pyarrow, polars and duckdb read it as
    it is: ``polars.DataFrame(table)``.
    """

    def __init__(self, name: str, frame: pyarrow.Table) -> None:
        self.name = name
        self._frame = frame

    @classmethod
    def of(cls, name: str, columns: dict[str, tuple[str, list[Any]]]) -> Table:
        """Makes a table of columns, each with the name of its Arrow type."""
        pa = arrow()
        types = {"timestamp": pa.timestamp("ns", "UTC"), "int64": pa.int64(), "int32": pa.int32(),
                 "string": pa.string(), "bool": pa.bool_()}  # fmt: skip
        arrays = {
            column: pa.array(values, pa.int64()).cast(types[kind])
            if kind == "timestamp"
            else pa.array(values, types[kind])
            for column, (kind, values) in columns.items()
        }
        return cls(name, pa.table(arrays))

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._frame.column_names)

    def column(self, name: str) -> list[Any]:
        """The values of one column; nulls for a column that it does not have."""
        if name not in self._frame.column_names:
            return [None] * len(self)
        values: list[Any] = _in_microseconds(self._frame.select([name])).column(0).to_pylist()
        return values

    def check_columns(self, names: Sequence[str] | None) -> None:
        """`KeyError` for the first of these that it does not have."""
        for name in names or ():
            if name not in self.columns:
                raise KeyError(f"no column {name!r} in the table {self.name!r}")

    def to_arrow(self) -> pyarrow.Table:
        """As a pyarrow.Table."""
        return self._frame

    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas.DataFrame."""
        return self._frame.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As a polars.DataFrame."""
        import polars

        return polars.from_arrow(self._frame)

    def duckdb(self) -> duckdb.DuckDBPyRelation:
        """As a relation of DuckDB's default connection."""
        import duckdb

        return duckdb.from_arrow(self._frame)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self._frame.num_rows)

    def _repr_html_(self) -> str:
        """How a notebook shows it: its first rows."""
        names = self.columns
        rows = _in_microseconds(self._frame.slice(0, _SHOWN_ROWS)).to_pylist()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{_cell(name, row[name])}</td>' for name in names)}</tr>"
            for row in rows
        )
        more = f"<p>{html.escape(self.name)}: {len(self)} rows</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self)} rows of {', '.join(self.columns)}>"


def _in_microseconds(frame: pyarrow.Table) -> pyarrow.Table:
    """Times as Python's datetime has them: without pandas, Arrow refuses to give nanoseconds."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", field.type.tz))
        if pa.types.is_timestamp(field.type)
        else field
        for field in frame.schema
    ]
    return frame.cast(pa.schema(fields), safe=False)
