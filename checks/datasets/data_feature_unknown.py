"""DATA103: a data file was written by a newer `datasets` than the one that is installed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from verl_doctor.checks.datasets._data import location, tables
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.collectors.model.datasets_features import DatasetsFeatures
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_OLD = DatasetsFeatures(
    version="3.6.0", names=("Value", "Sequence", "LargeList"), read_from="/env/datasets/features/features.py"
)
_NEW = DatasetsFeatures(version="4.1.0", names=("Value", "List", "Sequence"), read_from=_OLD.read_from)
_REWRITE = (
    "import sys, pyarrow.parquet as q; f = sys.argv[1]; "
    "q.write_table(q.read_table(f).replace_schema_metadata({}), f)"
)


def _examples() -> list[Example]:
    return [
        Example("the installed version supports all features", (tables(features=("List", "Value")), _NEW)),
        Example("no features in the footer", (tables(), _OLD)),
        Example(
            "the feature List for an older one", (tables(features=("List", "Value")), _OLD), "feature List"
        ),
    ]


@check("DATA103", phase="workers", examples=_examples)
def data_feature_unknown(tables: DataTables, installed: DatasetsFeatures) -> Iterator[Finding]:
    """A data file uses a feature that the installed `datasets` does not support.

    ## Why it matters

    The package `datasets` writes its own description of the columns into the footer. Since version 4 it calls
    lists `List`; older versions fail with `Feature type 'List' not found`, although the data are plain
    Parquet.

    ## How to fix

    Install `datasets>=4`, or rewrite the file without that description: the columns keep their types.
    """
    for table in tables.of("train", "val", "named"):
        unknown = [name for name in table.features if name not in installed.names]
        if unknown:
            yield Finding(
                f"{table.file.path} uses the feature {', '.join(unknown)}, which datasets "
                f"{installed.version} does not support",
                Evidence(", ".join(unknown), f"one of {', '.join(installed.names)}", installed.read_from),
                location=location(table.file),
                remedy=(
                    'pip install "datasets>=4", or rewrite the file: '
                    f"python -c {shlex.quote(_REWRITE)} {shlex.quote(table.file.path)}"
                ),
                subject=Subject("file", table.file.path),
            )
