"""DATA111: the data of a fine-tuning job have fewer rows than one batch takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import TABLE, location
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.checks.shared.fine_tuning import sharing_processes
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.demands import Demands
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_BATCH, _MOST, _OWN = "data.train_batch_size", "data.train_max_samples", "data.custom_cls.path"
_DIVIDES = Demands({"steps of an epoch": "/env/verl/trainer/sft_trainer.py:340"})
_FEW = DataTables((replace(TABLE, rows=100),))
_ONE, _EIGHT = (
    JobProcesses(needs_ranks=True, launcher="torchrun", options={"nproc_per_node": number})
    for number in ("1", "8")
)
_MANY = JobProcesses(needs_ranks=True, launcher="torchrun", undetermined=True)


def _job(*words: str) -> tuple[Configuration]:
    (found,) = configured(
        *words,
        tree={"data": {"train_batch_size": 256, "train_max_samples": -1}, "engine": {"strategy": "fsdp"}},
    )
    return (replace(found, program="/env/verl/trainer/sft_trainer.py"),)


def _irrelevant(configuration: Configuration) -> str | None:
    if not configuration.program.endswith("/sft_trainer.py"):
        return "this is no fine-tuning job"
    own = configuration.get(_OWN)
    return None if own in (None, MISSING, "") else f"{_OWN} may make other rows of the data"


def _examples() -> list[Example]:
    return [
        Example("as many rows as a batch takes", (*_job(f"{_BATCH}=100"), _FEW, _DIVIDES, _ONE)),
        Example("two files together", (*_job(f"{_BATCH}=200"), DataTables(_FEW.tables * 2), _DIVIDES, _ONE)),
        Example(
            "a file that is listed three times",
            (
                *_job(),
                DataTables((replace(TABLE, rows=100, file=replace(TABLE.file, times=3)),)),
                _DIVIDES,
                _ONE,
            ),
        ),
        Example(
            "rows that were not counted", (*_job(), DataTables((replace(TABLE, rows=None),)), _DIVIDES, _ONE)
        ),
        Example("a data set class of the job", (*_job(f"+{_OWN}=mine.py"), _FEW, _DIVIDES, _ONE)),
        Example("a release that trains nothing then", (*_job(), _FEW, Demands(), _ONE)),
        Example(
            "each of eight processes rounds its part of the batch down",
            (*_job(f"{_BATCH}=103"), _FEW, _DIVIDES, _EIGHT),
        ),
        Example(
            "a number of processes that is unknown may round it down",
            (*_job(f"{_BATCH}=103"), _FEW, _DIVIDES, _MANY),
        ),
        Example(
            "eight processes by a variable of torchrun",
            (
                *_job(f"{_BATCH}=103"),
                _FEW,
                _DIVIDES,
                JobProcesses(needs_ranks=True, launcher="torchrun"),
                JobVariables({"PET_NPROC_PER_NODE": "8"}),
            ),
        ),
        Example("too few", (*_job(), _FEW, _DIVIDES, _ONE), "100 rows, but one batch takes 256"),
        Example(
            "too few for any number of processes",
            (*_job(), _FEW, _DIVIDES, _MANY),
            "100 rows, but one batch takes 256",
        ),
        Example(
            "too few for each of eight processes",
            (*_job(f"{_BATCH}=104"), _FEW, _DIVIDES, _EIGHT),
            "100 rows, but one batch takes 104",
        ),
        Example(
            "the job takes fewer rows than there are",
            (*_job(f"{_BATCH}=64", f"{_MOST}=8"), _FEW, _DIVIDES, _ONE),
            "8 rows, but one batch takes 64",
        ),
    ]


@check(
    "DATA111",
    phase="first batch",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103"),
    examples=_examples,
    since="0.2",
)
def fine_tuning_rows_too_few(
    configuration: Configuration,
    tables: DataTables,
    demands: Demands,
    processes: JobProcesses,
    variables: JobVariables | Unknown,
) -> Iterator[Finding]:
    """The data of a fine-tuning job have fewer rows than one batch takes.

    ## Why it matters

    Each process gets its part of the rows and of the batch, both rounded down, and the SFT trainer drops the
    last, incomplete batch. Without any other, an epoch has no step, and the trainer divides by their number
    once the model is loaded: `integer division or modulo by zero`.

    ## How to fix

    Set `data.train_batch_size` to at most the number of rows. verl's default is 256.
    """
    batch, most = configuration.number(_BATCH), configuration.number(_MOST) or 0
    train = tables.of("train")
    whole = tables.rows_of("train") or 0
    rows = min(whole, int(most)) if most > 0 else whole
    where = demands.place("steps of an epoch")
    if (
        where
        and batch is not None
        and rows > 0
        and _is_too_few(rows, batch, sharing_processes(configuration, processes, variables))
    ):
        yield Finding(
            f"the training data have {rows} rows, but one batch takes {batch:g}",
            Evidence(f"{rows} rows", f"{batch:g} rows or more", where),
            location=location(train[0].file),
            remedy=f"set {_BATCH}={rows} or less",
            subject=Subject("setting", _BATCH),
            stops=(EVERY_JOB,),
            **healed(
                "DATA111", settings(configuration, {_BATCH: rows}, f"{rows} rows make a batch of {rows}")
            ),
        )


def _is_too_few(rows: int, batch: float, ranks: int) -> bool:
    """Return whether no process gets a whole batch; if their number is unknown, whether that always holds."""
    return rows // ranks < batch // ranks if ranks else batch >= 2 * rows
