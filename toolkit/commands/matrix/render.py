"""A table of releases, and what an upgrade would break, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from verl_doctor.toolkit.commands.matrix import sentences as words
from verl_doctor.toolkit.commands.matrix.judge import Break
from verl_doctor.toolkit.commands.matrix.matrix import Row, Table
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade
from verl_doctor.toolkit.console.lines import lines
from verl_doctor.toolkit.text import counted, harmless, listed

_HEADS = {"RECOMMENDED": "bold green", "BREAKS NOTHING": "bold green", "NOTHING NEW": "bold yellow"}
_CELLS = {"starts": "green", "fails: import": "red", "fails: start": "red", "unknown": "magenta"}
_SHOWN = 8  # releases listed per reason


def table_lines(table: Table, width: int | None) -> Iterator[Text]:
    """Yield the lines of a table. `width` is the terminal's, or None for a pipe."""
    yield from _head(*words.headline(table), width)
    yield from lines(f"{words.place(table)}; {words.extent(table)}", width, 0)
    for note in filter(None, (words.age(table.taken), *table.silent)):
        yield from lines(note, width, 2, style="yellow")
    yield Text()
    yield from _cells(table)
    stopped = list(words.causes(table))
    if stopped:
        yield Text()
        yield Text("First obstacle", style="bold")
    for rows, first in stopped:
        rest = words.more(rows[0].verdict) if rows[0].verdict else ""
        yield from _break(f"{words.span(rows, words.labels(table.rows))}: ", first, width, rest)
    yield from _objections(table.rows, width)
    if table.best is not None and table.best.fits:
        yield Text()
        yield from lines(
            "Neither declared pins nor sources alone are conclusive: run verl-doctor check after installing.",
            width,
            0,
            style="dim",
        )


def upgrade_lines(upgrade: Upgrade | None, width: int | None) -> Iterator[Text]:
    """Yield the lines about an upgrade; it is None when there is no newer release."""
    if upgrade is None:
        yield Text(words.NOTHING_NEWER)
        return
    yield from _head(*words.upgrade_headline(upgrade), width)
    row = upgrade.row
    yield from lines(f"now: {words.states(upgrade.before.paths)}", width, 2)
    yield from lines(f"then: {words.states(row.verdict.paths if row.verdict else ())}", width, 2)
    for title, breaks in (
        ("Would break", upgrade.breaks),
        ("Would break under some setting", upgrade.may_break),
        ("Would be fixed", upgrade.mends),
    ):
        if breaks:
            yield Text()
            yield Text(title, style="bold")
        for breakage in breaks:
            yield from _break("", breakage, width, "")
    yield from _objections((row,), width)
    if upgrade.verls:
        yield Text()
        yield Text(f"Newer verl with {words.named(row)}", style="bold")
    for verl in upgrade.verls:
        state = words.states(verl.verdict.paths) if verl.verdict else verl.unread
        yield from lines(f"verl {verl.version}: {state}", width, 2)


def _head(word: str, sentence: str, width: int | None) -> Iterator[Text]:
    first, *rest = lines(sentence, width, len(word) + 2, first=f"{word}  ", style="bold")
    first.stylize(_HEADS.get(word, "bold red"), 0, len(word))
    yield from (first, *rest)


def _cells(table: Table) -> Iterator[Text]:
    paths = words.paths_of(table.rows)
    called = words.labels(table.rows)
    labels = [called[row] + (" *" if row.installed else "") for row in table.rows]
    project = table.rows[0].project if table.rows else ""
    release = max(map(len, (project, *labels)))
    widths = [max(len(path), 13) for path in paths]
    settings = any(row.verdict and row.verdict.optional for row in table.rows)
    head = [project.ljust(release), *(path.ljust(size) for path, size in zip(paths, widths, strict=True))]
    head += ["settings"] if settings else []
    yield Text(harmless("  " + "  ".join([*head, "pins", "environment"])), style="dim")
    for label, row in zip(labels, table.rows, strict=True):
        line = Text(f"  {label:<{release}}")
        if row.fits:
            line.stylize("bold")
        for path, size in zip(paths, widths, strict=True):
            text = words.cell(row, path)
            line.append(f"  {text:<{size}}", style=_CELLS.get(text, "dim"))
        if settings:
            optional = len(row.verdict.optional) if row.verdict else 0
            line.append(f"  {optional or '':<8}", style="yellow")
        line.append(f"  {words.pins(row):<4}  {harmless(words.environment(row))}".rstrip())
        yield line
    notes = ["* installed"] if any(row.installed for row in table.rows) else []
    notes += ["settings: the number of breaks that occur only with some settings"] if settings else []
    if notes:
        yield Text("  " + "; ".join(notes), style="dim")


def _break(lead: str, breakage: Break, width: int | None, rest: str) -> Iterator[Text]:
    when = f" ({breakage.phase})" if breakage.phase else ""
    yield from lines(f"{lead}{breakage.code}{when} {breakage.message}", width, 4, first="  ")
    others = f" and {counted(len(breakage.places) - 1, 'more place')}" if len(breakage.places) > 1 else ""
    at = f"at {breakage.places[0]}{others}" if breakage.places else ""
    if text := "; ".join(filter(None, (at, rest))):
        yield from lines(text, width, 4, style="dim")


def _objections(rows: Iterable[Row], width: int | None) -> Iterator[Text]:
    """Objections to releases besides their sources, and what could not be read."""
    known = list(rows)
    found, called = words.objections(known), words.labels(known)
    if found:
        yield Text()
        yield Text("Other objections", style="bold")
    for reason, against in found.items():
        versions = listed((called[row] for row in against), _SHOWN)
        yield from lines(f"{versions}: {reason}", width, 4, first="  ")
