"""DATA102: a data file does not have the format that its name implies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, TABLE, files, location, tables
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles, Trouble
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_DESCRIPTIONS: dict[Trouble, tuple[str, str]] = {
    "pointer": (
        "is a Git LFS pointer, not the data",
        "run git lfs pull in its folder, or download the data again",
    ),
    "empty": ("is empty", "generate the file again; a full disk leaves empty files"),
    "not parquet": ("is not a Parquet file: it does not begin with PAR1", "write it with to_parquet"),
    "cut off": ("is truncated: it does not end with PAR1", "copy or generate it again"),
    "special": ("is a pipe or a device, not a file", "save the data to a regular file, and use that"),
    "unreadable": ("cannot be read", "check its permissions and its file system"),
}
_NOT_READ = (DataTables, Unknown("there is no pyarrow"))
_OLD = replace(DEMANDS, kinds=("parquet",))


def _examples() -> list[Example]:
    return [
        Example("a Parquet file", (files(), tables(), DEMANDS)),
        Example("JSON Lines for a verl that reads them", (files(kind="jsonl"), _NOT_READ, DEMANDS)),
        Example("it does not exist", (files("missing"), _NOT_READ, DEMANDS)),
        Example("a named pipe", (files("special"), _NOT_READ, DEMANDS), "is a pipe or a device"),
        Example("cloned without git-lfs", (files("pointer"), _NOT_READ, DEMANDS), "Git LFS pointer"),
        Example("an empty file", (files("empty"), _NOT_READ, DEMANDS), "is empty"),
        Example("a copy that was interrupted", (files("cut off"), _NOT_READ, DEMANDS), "is truncated"),
        Example("JSON Lines for an older verl", (files(kind="jsonl"), _NOT_READ, _OLD), "reads parquet only"),
        Example(
            "damaged inside",
            (files(), DataTables((replace(TABLE, unreadable="ArrowInvalid: bad thrift"),)), DEMANDS),
            "bad thrift",
        ),
    ]


@check("DATA102", phase="workers", examples=_examples)
def data_file_unusable(
    data: DataFiles, tables: DataTables | Unknown, demands: DataDemands | Unknown
) -> Iterator[Finding]:
    """A data file is a Git LFS pointer, empty, truncated, or in a format that this verl does not read.

    ## Why it matters

    verl passes the file to the package `datasets` after Ray has started. The error messages explain little:
    `Parquet magic bytes not found`, `An error occurred while generating the dataset`.

    ## How to fix

    Download or generate the file again. Older releases of verl read every file as Parquet; newer ones choose
    the format by the extension.
    """
    for file in data.files:
        if file.trouble in _DESCRIPTIONS:
            what, remedy = _DESCRIPTIONS[file.trouble]
            yield _finding(file, what + (f": {file.reason}" if file.reason else ""), remedy)
        elif not file.trouble and isinstance(demands, DataDemands) and file.kind not in demands.kinds:
            what = f"ends in .{file.kind}" if file.kind else "has no extension"
            reads = " and ".join(demands.kinds) if len(demands.kinds) > 1 else f"{demands.kinds[0]} only"
            yield _finding(file, f"{what}, but this verl reads {reads}", "convert it to Parquet")
    for table in tables.tables if isinstance(tables, DataTables) else ():
        if table.unreadable:
            yield _finding(
                table.file, f"cannot be read by pyarrow: {table.unreadable}", "generate the file again"
            )


def _finding(file: DataFile, what: str, remedy: str) -> Finding:
    return Finding(
        f"{file.path} {what}",
        Evidence(file.trouble or f"a .{file.kind} file", "a data file that verl reads", file.named_by),
        location=location(file),
        remedy=remedy,
        subject=Subject("file", file.path),
    )
