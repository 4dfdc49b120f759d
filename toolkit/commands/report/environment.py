"""The variables of the job in its driver and its workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.effective_environment import Effective, EffectiveEnvironment
from verl_doctor.toolkit.commands.environment.document import (
    cell,
    circumstances,
    decided_at,
    headline,
    legend,
    worth_showing,
)
from verl_doctor.toolkit.commands.report.page import Block, Fold, Paragraph, Points, Rank, Section, Table
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import counted

# What verl's scripts/diagnose.py prints of the environment.
_PREFIXES = ("VERL_", "OMP_", "KMP_")
_NAMES = ("CC", "CXX")
_LONG = 400  # characters of a value
_AS_THE_DRIVER = "the same"
_HEAD = ("variable", "driver", "its workers", "decided by")


def sections(seen: Seen) -> Iterator[Section]:
    """Yield what differs, what verl's own script would print, and the rest folded."""
    found = seen.facts.get(EffectiveEnvironment)
    shell = seen.facts.get(Variables)
    blocks: list[Block] = []
    if isinstance(found, Unknown):
        blocks.append(Paragraph(f"What the workers see is unknown: {found.reason}."))
        named: set[str] = set()
    else:
        _, sentence = headline(found)
        blocks += [Paragraph(f"{sentence[:1].upper()}{sentence[1:]}."), Points(tuple(circumstances(found)))]
        rows = [
            row for row in found.rows if row in worth_showing(found, every=False) or _is_relevant(row.name)
        ]
        named = {row.name for row in found.rows}
        blocks += [*_table(rows, found), *_others(found, rows)]
    if isinstance(shell, Variables):
        blocks += _of_the_shell(shell, named)
    of = f", on {seen.facts_of}" if seen.facts_of else ""
    yield Section(f"Environment as the workers see it{of}", tuple(blocks), Rank.SYSTEM)


def _is_relevant(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _NAMES


def _table(rows: list[Effective], found: EffectiveEnvironment) -> Iterator[Block]:
    if rows:
        yield Table(_HEAD, tuple(_row(row, found) for row in rows))
    if signs := legend(rows):
        yield Paragraph(signs)


def _row(row: Effective, found: EffectiveEnvironment) -> tuple[str, ...]:
    at = decided_at(row, found)
    worker = _AS_THE_DRIVER if row.worker == row.driver and row.driver.is_set else _brief(cell(row.worker))
    return row.name, _brief(cell(row.driver)), worker, row.decided_by + (f" ({at})" if at else "")


def _brief(value: str) -> str:
    return value if len(value) <= _LONG else f"{value[:_LONG]}... ({len(value):,} characters)"


def _others(found: EffectiveEnvironment, shown: Iterable[Effective]) -> Iterator[Block]:
    known = {row.name for row in shown}
    if rows := [row for row in found.rows if row.name not in known]:
        yield Fold(
            f"{counted(len(rows), 'variable')} with the same value everywhere", tuple(_table(rows, found))
        )


def _of_the_shell(shell: Variables, named: set[str]) -> Iterator[Block]:
    rest = {name: value for name, value in shell.values.items() if name not in named}
    rows = [
        *((name, _brief(value)) for name, value in rest.items()),
        *((name, "*** (may be a secret)") for name in shell.withheld if name not in named),
    ]
    if rows:
        title = f"{counted(len(rows), 'variable')} of this shell"
        yield Fold(title, (Table(("variable", "value"), tuple(sorted(rows))),))
