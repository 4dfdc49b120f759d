"""The variables of the job in its driver and its workers."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.effective_environment import Effective, EffectiveEnvironment
from verl_doctor.toolkit.commands.environment.document import (
    cell,
    circumstances,
    decided_at,
    headline,
    legend,
)
from verl_doctor.toolkit.commands.report.page import Block, Fold, PageSection, Paragraph, Points, Rank, Table
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.text import counted

# What verl's scripts/diagnose.py prints of the environment.
_PREFIXES = ("VERL_", "OMP_", "KMP_")
_NAMES = ("CC", "CXX")
_LONG = 400  # characters of a value
_AS_THE_DRIVER = "the same"
_HEAD = ("variable", "driver", "its workers", "decided by")


def sections(seen: Seen) -> Iterator[PageSection]:
    """Yield how the workers get their variables, and folded the values."""
    found = seen.facts.get(EffectiveEnvironment)
    shell = seen.facts.get(Variables)
    blocks: list[Block] = []
    if isinstance(found, Unknown):
        blocks.append(Paragraph(f"What the workers see is unknown: {found.reason}."))
        named: set[str] = set()
    else:
        _, sentence = headline(found)
        blocks += [Paragraph(f"{sentence[:1].upper()}{sentence[1:]}."), Points(tuple(circumstances(found)))]
        named = {row.name for row in found.rows}
        blocks += _rows(found)
    if isinstance(shell, Variables):
        blocks += _of_the_shell(shell, named)
    of = f", on {seen.facts_of}" if seen.facts_of else ""
    yield PageSection(f"Environment as the workers see it{of}", tuple(blocks), Rank.SYSTEM)


def _rows(found: EffectiveEnvironment) -> Iterator[Block]:
    """Yield the variables of the driver, those that only verl or Ray set in a line each."""
    own = [row for row in found.rows if row.driver.is_set or _is_relevant(row.name)]
    blocks: list[Block] = [Table(_HEAD, tuple(_row(row, found) for row in own))] if own else []
    added: dict[str, list[str]] = {}
    for row in found.rows:
        if row not in own:
            added.setdefault(row.decided_by, []).append(f"{row.name}={_brief(cell(row.worker))}")
    if added:
        blocks.append(Points(tuple(f"set by {who}: {', '.join(values)}" for who, values in added.items())))
    if signs := legend(found.rows):
        blocks.append(Paragraph(signs))
    if found.rows:
        yield Fold(counted(len(found.rows), "variable"), tuple(blocks))


def _is_relevant(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _NAMES


def _row(row: Effective, found: EffectiveEnvironment) -> tuple[str, ...]:
    at = decided_at(row, found)
    worker = _AS_THE_DRIVER if row.worker == row.driver and row.driver.is_set else _brief(cell(row.worker))
    return row.name, _brief(cell(row.driver)), worker, row.decided_by + (f" ({at})" if at else "")


def _brief(value: str) -> str:
    return value if len(value) <= _LONG else f"{value[:_LONG]}... ({len(value):,} characters)"


def _of_the_shell(shell: Variables, named: set[str]) -> Iterator[Block]:
    rest = {name: value for name, value in shell.values.items() if name not in named}
    rows = [
        *((name, _brief(value)) for name, value in rest.items()),
        *((name, "*** (may be a secret)") for name in shell.withheld if name not in named),
    ]
    if rows:
        title = f"{counted(len(rows), 'variable')} of this shell"
        yield Fold(title, (Table(("variable", "value"), tuple(sorted(rows))),))
