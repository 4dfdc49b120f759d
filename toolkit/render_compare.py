"""A comparison for a terminal and as Markdown: the verdict, what breaks, what matters, and how much else differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from verl_doctor.toolkit import compare_document as words
from verl_doctor.toolkit.compare import Difference
from verl_doctor.toolkit.compare_judge import Comparison
from verl_doctor.toolkit.markdown_text import escaped
from verl_doctor.toolkit.render_environment import shortened
from verl_doctor.toolkit.text import counted, harmless, listed, wrapped

_STYLES: Final = {
    "equal": "bold green",
    "matters": "bold yellow",
    "breaks": "bold red",
    "could_not_compare": "bold magenta",
}
_LONGEST = 60  # characters of a value; JSON and Markdown have it whole
_SENTENCES = 4  # on what could not be compared
_NAMED = 8  # subjects that are named without their values
_WIDEST = 40  # columns of a subject before its values


def text_lines(of: Comparison, width: int | None, *, every: bool) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe."""
    word = words.WORDS[of.verdict]
    first, *more = _lines(f"{word}  {words.headline(of)}", width, "", "  ")
    first.stylize(_STYLES[of.verdict], 0, len(word))
    yield from (first, *more)
    yield from _lines(f"old: {words.side(of.old, 'a facts file')}", width, "  ", "       ", "dim")
    yield from _lines(f"new: {words.side(of.new, 'a facts file')}", width, "  ", "       ", "dim")
    for one in of.of("breaks"):
        yield Text()
        yield from _breaking(one, of, width)
    for group in words.groups(of.of("matters"), every=every):
        yield Text()
        yield from _group(group, of, width)
    yield from _rest(of, width, every=every)


def _lines(text: str, width: int | None, indent: str, hanging: str, style: str = "") -> list[Text]:
    return [
        Text(line, style=style) for line in wrapped(harmless(text), width, indent=indent, hanging=hanging)
    ]


def _breaking(one: Difference, of: Comparison, width: int | None) -> Iterator[Text]:
    codes = ", ".join(one.codes)
    if one.kind == "finding":
        head = f"{codes}  {one.new}"
    else:
        old, new = (shortened(value, _LONGEST) for value in words.values(one))
        head = f"{codes}  {one.kind} {one.subject}: {old} -> {new}"
    place = words.where(one, of)
    yield from _lines(f"{head}{f' ({place})' if place else ''}", width, "", "  ", "bold red")
    if one.kind == "finding":
        yield from _lines(f"before  {one.old}", width, "  ", "          ")
    yield from _lines(f"why     {one.why}", width, "  ", "          ")
    yield from _lines(f"do      {one.next}", width, "  ", "          ") if one.next else ()


def _group(group: words.Group, of: Comparison, width: int | None) -> Iterator[Text]:
    yield from _lines(f"{group.kind}{f': {group.why}' if group.why else ''}", width, "", "  ", "bold yellow")
    size = min(_WIDEST, max(len(one.subject) for one in group.shown))
    for one in group.shown:
        old, new = (shortened(value, _LONGEST) for value in words.values(one))
        place = words.where(one, of)
        line = f"{one.subject:<{size}}  {old} -> {new}{f'  {place}' if place else ''}"
        yield from _lines(line, width, "  ", "      ")
        if one.next and not group.do:
            yield from _lines(f"do  {one.next}", width, "      ", "          ", "dim")
    if group.do:
        yield from _lines(f"do  {group.do}", width, "      ", "          ", "dim")
    if group.left:
        names = listed([one.subject for one in group.left], _NAMED)
        yield from _lines(
            f"and {len(group.left)} more, which --all shows: {names}", width, "  ", "      ", "dim"
        )


def _rest(of: Comparison, width: int | None, *, every: bool) -> Iterator[Text]:
    noise = of.of("noise")
    if every:
        for group in words.groups(noise, every=True):
            yield Text()
            yield from _noise(group, of, width)
    if of.gone:
        codes = ", ".join(dict.fromkeys(code for code, _ in of.gone))
        yield Text()
        yield from _lines(f"no longer found: {codes}", width, "", "  ", "green")
    if of.untold:
        yield Text()
        for sentence in of.untold if every else of.untold[:_SENTENCES]:
            yield from _lines(f"not compared: {sentence}", width, "", "  ", "dim")
    if noise and not every:
        yield Text()
        said = f"{counted(len(noise), 'difference')} that {'does' if len(noise) == 1 else 'do'} not matter: --all shows them"
        yield Text(said, style="dim")


def _noise(group: words.Group, of: Comparison, width: int | None) -> Iterator[Text]:
    yield Text(f"{group.kind} (does not matter)", style="dim")
    for one in group.shown:
        old, new = (shortened(value, _LONGEST) for value in words.values(one))
        place = words.where(one, of)
        said = f"{one.subject}: {new}" if one.kind == "fact" else f"{one.subject}: {old} -> {new}"
        yield from _lines(f"{said}{f'  {place}' if place else ''}", width, "  ", "      ", "dim")


def markdown_lines(of: Comparison, *, every: bool) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    yield f"## verl-doctor compare: {words.WORDS[of.verdict].lower()}"
    yield ""
    yield escaped(words.headline(of))
    yield ""
    yield f"* old: {escaped(words.side(of.old, 'a facts file'))}"
    yield f"* new: {escaped(words.side(of.new, 'a facts file'))}"
    shown = [*of.of("breaks"), *of.of("matters"), *(of.of("noise") if every else ())]
    if shown:
        yield ""
        yield "| weight | what | old | new | why | next step |"
        yield "|---|---|---|---|---|---|"
    for one in shown:
        place = words.where(one, of)
        what = f"{one.kind} {one.subject}{f' {place}' if place else ''}"
        why = f"{', '.join(one.codes)}: {one.why}" if one.codes else one.why
        cells = (one.weight, what, *words.values(one), why, one.next)
        yield f"| {' | '.join(escaped(cell) for cell in cells)} |"
    if of.untold or of.lost:
        yield ""
        yield from (f"* not compared: {escaped(sentence)}" for sentence in (*of.lost, *of.untold))
