"""A table of releases, and what an upgrade would break, as Markdown to paste into a ticket."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.commands.matrix import sentences as words
from verl_doctor.toolkit.commands.matrix.judge import Break
from verl_doctor.toolkit.commands.matrix.matrix import Table
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade
from verl_doctor.toolkit.console.markdown_text import escaped


def table_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    word, sentence = words.headline(table)
    yield f"## verl-doctor matrix: {word.lower()}"
    yield ""
    yield escaped(sentence)
    yield ""
    yield f"* {escaped(words.place(table))}"
    yield f"* {escaped(words.extent(table))}"
    yield from (f"* {escaped(note)}" for note in filter(None, (words.age(table.taken), *table.silent)))
    yield ""
    paths = words.paths_of(table.rows)
    yield f"| release | {' | '.join([*paths, 'pins', 'environment', 'first break'])} |"
    yield "|---" * (len(paths) + 4) + "|"
    called = words.labels(table.rows)
    for row in table.rows:
        first = words.first_break(row.verdict) if row.verdict else None
        cells = [words.cell(row, path) for path in paths]
        cells += [words.pins(row), words.environment(row), _short(first) if first else row.unread]
        star = " (installed)" if row.installed else ""
        yield f"| {escaped(called[row])}{star} | {' | '.join(map(escaped, cells))} |"
    for row in table.rows:
        if reasons := words.against(row):
            yield ""
            yield f"{escaped(words.named(row))}:"
            yield from (f"* {escaped(reason)}" for reason in reasons)


def upgrade_lines(upgrade: Upgrade | None) -> Iterator[str]:
    """Yield the lines about an upgrade; it is None when there is no newer release."""
    if upgrade is None:
        yield words.NOTHING_NEWER
        return
    word, sentence = words.upgrade_headline(upgrade)
    yield f"## verl-doctor matrix --next: {word.lower()}"
    yield ""
    yield escaped(sentence)
    yield ""
    yield f"* now: {escaped(words.states(upgrade.before.paths))}"
    yield f"* then: {escaped(words.states(upgrade.row.verdict.paths if upgrade.row.verdict else ()))}"
    for title, breaks in (
        ("Would break", upgrade.breaks),
        ("Would break under some setting", upgrade.may_break),
        ("Would be fixed", upgrade.mends),
    ):
        if breaks:
            yield ""
            yield f"### {title}"
            yield ""
            yield from (f"* {escaped(_short(breakage))}" for breakage in breaks)
    if reasons := words.against(upgrade.row):
        yield ""
        yield "### Other objections"
        yield ""
        yield from (f"* {escaped(reason)}" for reason in reasons)
    for verl in upgrade.verls:
        state = words.states(verl.verdict.paths) if verl.verdict else verl.unread
        yield f"* verl {escaped(verl.version)}: {escaped(state)}"


def _short(breakage: Break) -> str:
    return f"{breakage.code} {breakage.message}" + (f" ({breakage.places[0]})" if breakage.places else "")
