"""DATA115: a column has a name that verl's agent loop needs itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, NEVER, VALIDATION, location, tables, used
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables
from verl_doctor.toolkit.collectors.model.row_arguments import RowArguments
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_TAKEN = RowArguments(
    passed={"session_id": "/env/verl/agent_loop_tq.py:126"},
    replaced={"responses": "/env/verl/agent_loop_tq.py:204"},
)
_SESSION = Column(name="session_id", kind="string")
_VALIDATED = DataTables(tuple(replace(table, file=VALIDATION) for table in tables(_SESSION).tables))


def _examples() -> list[Example]:
    return [
        Example(
            "names of one's own",
            (tables(Column(name="session", kind="string")), DEMANDS, _TAKEN, *configured()),
        ),
        Example(
            "a verl that passes nothing of that name",
            (tables(_SESSION), DEMANDS, RowArguments(), *configured()),
        ),
        Example(
            "a table that the job never validates with", (_VALIDATED, DEMANDS, _TAKEN, *configured(*NEVER))
        ),
        Example(
            "a column for the session",
            (tables(_SESSION), DEMANDS, _TAKEN, *configured()),
            "has a column session_id, but verl passes an argument of that name itself",
        ),
        Example(
            "earlier responses",
            (tables(Column(name="responses", kind="list<string>")), DEMANDS, _TAKEN, *configured()),
            "has a column responses, which replaces the tokens that verl keeps under that name",
        ),
    ]


@check(
    "DATA115",
    phase="first batch",
    requires=("DATA101", "DATA102", "DATA103"),
    examples=_examples,
    since="0.2",
)
def column_name_taken(
    tables: DataTables, demands: DataDemands, taken: RowArguments, configuration: Configuration
) -> Iterator[Finding]:
    """A column has a name that verl's agent loop needs itself.

    ## Why it matters

    The agent loop passes all columns of a row on as named arguments. A column with the name of one of its own
    arguments stops the first batch, after the model is loaded: `got multiple values for keyword argument
    'session_id'`. A column with the name of a tensor, such as `responses`, replaces it: `'list' object has no
    attribute 'size'`.

    ## How to fix

    Rename the column, or leave it out. verl reads only the columns that its settings name.
    """
    for table, phase in used(tables, configuration):
        for column in table.columns:
            if column.name in (demands.prompt, *demands.media):
                continue
            if place := taken.passed.get(column.name):
                consequence = ", but verl passes an argument of that name itself"
            elif place := taken.replaced.get(column.name):
                consequence = ", which replaces the tokens that verl keeps under that name"
            else:
                continue
            yield Finding(
                f"{table.file.path} has a column {column.name}{consequence}",
                Evidence(f"{column.name}: {column.kind[:200]}", "another name", place),
                location=location(table.file),
                remedy=f"rename the column {column.name} of {table.file.path}, or leave it out",
                subject=Subject("column", column.name, table.file.path),
                stops=(EVERY_JOB,),
                phase=phase,
            )
            break
