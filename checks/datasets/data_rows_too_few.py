"""DATA107: the data have fewer rows than one step needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, instead_of_validation, location, tables
from verl_doctor.checks.shared.configuration import GPUS, NODES
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_BATCH = "data.train_batch_size"
_MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"


def _examples() -> list[Example]:
    return [
        Example("enough rows", (tables(), DEMANDS)),
        Example("as many as one step needs", (tables(rows=1024), DEMANDS)),
        Example("the size of a step is not known", (tables(rows=2), replace(DEMANDS, batch=0))),
        Example(
            "a single row", (tables(rows=1), DEMANDS), "the training data have 1 row, but one step takes 1024"
        ),
        Example("too few", (tables(rows=2), DEMANDS), "2 rows, but one step takes 1024"),
        Example(
            "the job takes fewer rows than there are", (tables(), replace(DEMANDS, most_rows=8)), "8 rows"
        ),
        Example("no rows at all", (tables(rows=0), replace(DEMANDS, batch=0)), "has no rows"),
    ]


@check("DATA107", phase="workers", examples=_examples)
def data_rows_too_few(
    tables: DataTables, demands: DataDemands, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The training data have fewer rows than one step takes, or a file has none.

    ## Why it matters

    verl drops the last, incomplete batch of the training data. If there is no other batch, it ends with
    `Train dataloader is empty!`. Rows whose prompt is longer than `data.max_prompt_length` are dropped first,
    so a few more are needed.

    ## How to fix

    Set `data.train_batch_size` and `actor_rollout_ref.actor.ppo_mini_batch_size` to at most the number of
    rows.
    """
    for table in tables.of("train", "val", "named"):
        if table.rows == 0:
            yield Finding(
                f"{table.file.path} has no rows",
                Evidence("0 rows", "1 row or more", table.file.path),
                location=location(table.file),
                remedy="generate the data again",
                subject=Subject("file", table.file.path),
                **healed("DATA107", instead_of_validation(table.file, _sound(tables), configuration)),
            )
    train = tables.of("train")
    whole = tables.rows_of("train") or 0
    rows = min(whole, demands.most_rows or whole)
    if 0 < rows < demands.batch:
        yield Finding(
            f"the training data have {counted(rows, 'row')}, but one step takes {demands.batch}",
            Evidence(counted(rows, "row"), f"{demands.batch} rows or more", demands.batch_from),
            location=location(train[0].file),
            remedy=f"set data.train_batch_size and ppo_mini_batch_size to {rows} or less",
            subject=Subject("setting", "data.train_batch_size"),
            **healed("DATA107", _correction(configuration, rows)),
        )


def _sound(tables: DataTables) -> str:
    """The first training table with rows; "" if there is none."""
    return next((table.file.path for table in tables.of("train") if table.rows), "")


def _correction(configuration: Configuration | Unknown, rows: int) -> Correction | None:
    """A batch of the rows that exist, and mini batches no larger than that."""
    if isinstance(configuration, Unknown):
        return None
    gpus = int((configuration.number(GPUS) or 1) * (configuration.number(NODES) or 1))
    batch = next((size for size in range(rows, 0, -1) if size % gpus == 0), rows)
    mini = configuration.number(_MINI)
    values = {_BATCH: batch, **({_MINI: batch} if mini and mini > batch else {})}
    return settings(
        configuration, values, f"{counted(rows, 'row')} {'makes' if rows == 1 else 'make'} a batch of {batch}"
    )
