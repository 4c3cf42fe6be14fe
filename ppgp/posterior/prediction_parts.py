"""Part files of predictions: each is written whole, and they are joined at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..errors import DataError, StorageError

__all__ = ["ALL_BLANK", "GUARANTEE", "Parts"]

FACTS = "parts.json"
PART = "part-{:06d}.parquet"
GUARANTEE = b"ppgp.guarantee"  # in the metadata of parts and output
ALL_BLANK = b"ppgp.blank"  # in the metadata of a part none of whose rows has a prediction


@dataclass(frozen=True)
class Parts:
    """The parts of one output, in a folder beside it.

    Attributes:
        out: The output.
        facts: What the call depends on, as JSON. Its parts go on with no other.
    """

    out: Path
    facts: dict[str, Any]

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.out.with_name(f"{self.out.name}.parts")

    def path(self, number: int) -> Path:
        """Return the path of a part."""
        return self.folder / PART.format(number)

    def open(self) -> None:
        """Make the folder with the facts, or check that it holds the parts of the same call.

        Raises:
            StorageError: If it holds those of another call, or other files, or cannot be made.
        """
        folder, facts = self.folder, self.folder / FACTS
        with files.explained(folder):
            there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        if there in ([], [FACTS]):
            files.write(facts, json.dumps(self.facts), folder=True)
            return
        try:
            known = json.loads(facts.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = None
        if known == self.facts:
            return
        differing: list[str] = []
        if isinstance(known, dict):
            differing = [key for key in self.facts if known.get(key) != self.facts[key]]
        got = f"those of a call with another {differing[0]}" if differing else "other files"
        do = "choose another out, make the same call again, or remove that folder"
        raise StorageError(f"the parts of this call in {folder}", got, do)

    def complete(self, rows: int, n: int) -> int:
        """Return how many of the first parts are complete.

        A file that was cut off has no footer, and is made again with all after it.

        Args:
            rows: The rows of each part but the last.
            n: The rows of all.
        """
        import pyarrow
        from pyarrow import parquet

        number = 0
        while number * rows < n:
            try:
                found = parquet.read_metadata(self.path(number)).num_rows
            except (OSError, pyarrow.ArrowException):
                break
            if found != min(rows, n - number * rows):
                break
            number += 1
        return number

    def write(self, number: int, table: Any) -> None:
        """Write a part under another name, and give it its own once it is whole."""
        from pyarrow import parquet

        with files.replacing_path(self.path(number)) as new, files.explained(new):
            parquet.write_table(table, new, **_settings(table.schema), row_group_size=len(table))

    def join(self, count: int) -> tuple[int, str | None]:
        """Write the parts to the output as one row group each; it replaces a file there.

        Returns:
            How many rows have no prediction, and the guarantee of the intervals or sets, None if
            there are none.

        Raises:
            DataError: If no row has a prediction.
            StorageError: If the operating system does not allow it.
        """
        from pyarrow import parquet

        schemas = (parquet.read_schema(self.path(number)) for number in range(count))
        schema = next((one for one in schemas if ALL_BLANK not in (one.metadata or {})), None)
        if schema is None:
            raise DataError("a row with a value in every cell", "none", "fill empty cells")
        blank = 0
        with (
            files.replacing_path(self.out) as new,
            files.explained(new),
            parquet.ParquetWriter(new, schema, **_settings(schema)) as file,
        ):
            for table in self._tables(count):
                table = _with_columns(table, schema)
                blank += table.column(len(schema) - 1).null_count
                file.write_table(table, row_group_size=len(table))
        guarantee = (schema.metadata or {}).get(GUARANTEE)
        return blank, None if guarantee is None else guarantee.decode()

    def _tables(self, count: int) -> Iterator[Any]:
        """Yield the tables of the parts, one in memory at a time."""
        from pyarrow import parquet

        for number in range(count):
            with parquet.ParquetFile(self.path(number)) as part:
                yield part.read()

    def remove(self) -> None:
        """Remove the parts, the last first, and the folder unless it holds other files."""
        for path in sorted(self.folder.glob("part-*.parquet"), reverse=True):
            path.unlink()
        for left in self.folder.glob(".part-*.new.parquet"):
            left.unlink()
        with suppress(OSError):
            (self.folder / FACTS).unlink()
            self.folder.rmdir()


def _with_columns(table: Any, schema: Any) -> Any:
    """Return a table with the columns of a schema; those that it lacks are empty."""
    import pyarrow

    if table.schema.equals(schema):
        return table
    columns = [
        table.column(field.name)
        if field.name in table.column_names
        else pyarrow.nulls(len(table), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _settings(schema: Any) -> dict[str, Any]:
    """Return how a schema is encoded: text by dictionaries, which real numbers do not repay."""
    from pyarrow import types

    numbers = {field.name for field in schema if types.is_floating(field.type)}
    nested = {field.name for field in schema if types.is_list(field.type)}
    others = [name for name in schema.names if name not in numbers | nested]
    return {"use_dictionary": [*others, *(f"{name}.list.element" for name in nested)]}
