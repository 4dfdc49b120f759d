"""The data files' contents: columns, rows, features of the package `datasets`, names of data sources."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import launch_values, text_of
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles, Role
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import data
from verl_doctor.toolkit.system.child import ending, run_probe

SOURCE_KEY = "data_source"
_LIMIT = 30.0  # seconds: importing pyarrow takes about one


@dataclass(frozen=True)
class Column:
    """One column. `kind` is its type as text, such as list<struct<role: string, content: string>>."""

    name: str
    kind: str


@dataclass(frozen=True)
class Table:
    """The contents of one file.

    `rows` is None if they were not all counted. `features` are the types that `datasets` wrote into the
    footer. `sources` are the names of data sources in the first 100,000 rows, `agents` those of agent loops.
    `filled` are columns that certainly have a value in some row, `nulls` the numbers of rows without a prompt
    or messages, `empty` those with an empty list in their place. `unreadable` is why the file could not be
    read although its first and last bytes are right; everything else is then empty.
    """

    file: DataFile
    rows: int | None = None
    columns: tuple[Column, ...] = ()
    features: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    unreadable: str = ""
    agents: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    nulls: tuple[tuple[str, int], ...] = ()
    empty: tuple[tuple[str, int], ...] = ()

    def kind(self, name: str) -> str:
        """Return the type of a column; empty if there is no such column."""
        return next((column.kind for column in self.columns if column.name == name), "")


@dataclass(frozen=True)
class DataTables:
    """The files that could be opened."""

    tables: tuple[Table, ...]

    def of(self, *roles: Role) -> tuple[Table, ...]:
        """Return the tables that were read and have one of these roles."""
        return tuple(table for table in self.tables if table.file.role in roles and not table.unreadable)

    def rows_of(self, role: Role) -> int | None:
        """Return the row count of a role's files, each as often as listed; None if one was not counted."""
        tables = [table for table in self.tables if table.file.role == role]
        counts = [
            table.rows * table.file.times
            for table in tables
            if table.rows is not None and not table.unreadable
        ]
        return sum(counts) if len(counts) == len(tables) else None


@collector(timeout=40)
def data_tables(
    machine: Machine,
    files: DataFiles,
    interpreter: Interpreter,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
) -> DataTables | Unknown:
    """Read the footers with the target's own pyarrow: what it cannot read, verl cannot either."""
    sound = [file for file in files.files if not file.trouble]
    if not sound:
        return Absent("none of the data files can be opened")
    source = text_of(launch_values(launch, configuration), "data.reward_fn_key") or SOURCE_KEY
    named = list(dict.fromkeys((file.kind, file.path) for file in sound))
    reported = _query(machine, interpreter.executable, source, named)
    if isinstance(reported, Unknown):
        return reported
    by_name = dict(zip(named, reported, strict=True))
    lacking = next((table["lacks"] for table in reported if "lacks" in table), "")
    if lacking:
        return Unknown(f"{interpreter.executable} has no {lacking}, without which verl cannot read the data")
    return DataTables(tuple(_table(file, by_name[file.kind, file.path]) for file in sound))


def _query(
    machine: Machine, python: str, source: str, named: list[tuple[str, str]]
) -> list[dict[str, Any]] | Unknown:
    result = run_probe(machine, python, data, source, *chain.from_iterable(named), timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if not isinstance(reported, list) or len(reported) != len(named):
        return Unknown(f"the data files could not be described: {ending(output, _LIMIT)}")
    return reported


def _table(file: DataFile, described: dict[str, Any]) -> Table:
    if "error" in described:
        return Table(file, unreadable=str(described["error"]))
    return Table(
        file=file,
        rows=described["rows"],
        columns=tuple(Column(str(name), str(kind)[:2000]) for name, kind in described["columns"]),
        features=tuple(described["features"]),
        sources=tuple(str(name)[:200] for name in described["sources"]),
        agents=tuple(str(name)[:200] for name in described.get("agents", ())),
        filled=tuple(str(name) for name in described.get("filled", ())),
        nulls=tuple((str(name), int(rows)) for name, rows in described.get("nulls", ())),
        empty=tuple((str(name), int(rows)) for name, rows in described.get("empty", ())),
    )
