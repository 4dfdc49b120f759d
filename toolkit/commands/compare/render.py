"""A comparison for a terminal and as Markdown: verdict, what breaks, what matters, how much else differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from verl_doctor.toolkit.comparison import document as words
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.judge import Comparison
from verl_doctor.toolkit.comparison.meaning import ByHand
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.text import counted, harmless, listed, without_middle, wrapped

_STYLES: Final = {
    "equal": "bold green",
    "matters": "bold yellow",
    "breaks": "bold red",
    "could_not_compare": "bold magenta",
}
_LONGEST = 60  # characters of a value; JSON and Markdown show it in full
_SHORT = 24  # characters of a value in the line of its kind
_NAMED = 8  # rules
_NAMED_OF_A_KIND = 4  # differences in the line of their kind
_MOST = 4  # differences that break something, and kinds of others
_LINES = 20  # without -v
_KINDS_IN_WORDS: Final = {"finding": "new warnings"}
_WIDEST = 40  # columns of a subject before its values


def text_lines(of: Comparison, width: int | None, *, every: bool) -> Iterator[Text]:
    """Yield the lines, at most 20 of them unless all are requested.

    `width` is the terminal's, or None for a pipe.
    """
    word = words.WORDS[of.verdict]
    first, *more = _lines(f"{word}  {words.headline(of)}", width, "", "  ")
    first.stylize(_STYLES[of.verdict], 0, len(word))
    head = [first, *more]
    for name, side in (("old", of.old), ("new", of.new)):
        head += _lines(f"{name}: {words.side(side, 'a facts file')}", width, "  ", "    ", "dim")
    yield from head
    if every:
        yield from _whole(of, width)
        return
    shown: list[Text] = []
    for most in range(_MOST, 0, -1):
        shown = list(_short(of, width, most))
        if len(head) + len(shown) <= _LINES:
            break
    yield from shown


def _short(of: Comparison, width: int | None, most: int) -> Iterator[Text]:
    """Yield what breaks, with the next step.

    Then yield what may change the job, by kind, and the rest in numbers. At most so many of both are shown.
    """
    breaks = words.with_packages_together(of.of("breaks"))
    if breaks:
        yield Text("Stops the job:", style="bold red")
    for first, *more in breaks[:most]:
        whole = _head(first, of, first.why, more)
        fits = width is None or len(whole) + 2 <= width
        yield from _lines(whole if fits else _head(first, of, more=more), width, "  ", "    ")
        if first.next:
            columns = width if isinstance(first.next, ByHand) else None  # a command is never wrapped
            yield from _lines(first.next, columns, "    ", "      ", "dim")
    kinds = words.by_kind(of.of("matters"))
    if kinds:
        yield Text("May change what the job does:", style="bold yellow")
    for kind, members in list(kinds.items())[:most]:
        yield from _of_kind(_KINDS_IN_WORDS.get(kind, kind), [_change(member) for member in members], width)
    left = sum(map(len, breaks[most:])) + sum(len(members) for members in list(kinds.values())[most:])
    rest = [f"{counted(left, 'more difference')}"] if left else []
    rest += [f"{len(of.of('noise'))} without effect"] if of.of("noise") else []
    rest += [f"{len(of.not_compared)} not compared"] if of.not_compared else []
    if of.gone:
        codes = listed(dict.fromkeys(code for code, _ in of.gone), _NAMED)
        yield from _lines(f"No longer found: {codes}", width, "", "  ", "green")
    if rest or breaks or kinds:
        last = ": ".join(filter(None, ("-v shows everything", ", ".join(rest))))
        yield from _lines(last, width, "", "  ", "dim")


def _of_kind(kind: str, found: Sequence[str], width: int | None) -> list[Text]:
    """Return the first differences of a kind: as many as fit into one line, but at least one as a whole."""
    text = ""
    for most in range(_NAMED_OF_A_KIND, 0, -1):
        text = f"{kind}: {listed(found, most)}"
        if width is None or len(text) + 2 <= width:
            break
    return _lines(text, width, "  ", "    ")


def _change(difference: Difference) -> str:
    if difference.kind == "finding":
        return f"{difference.subject} {without_middle(difference.new, _LONGEST)}"
    old, new = (without_middle(value, _SHORT) for value in words.values(difference))
    codes = f" ({', '.join(difference.codes)})" if difference.codes else ""
    return difference.summary or f"{difference.subject} {old} -> {new}{codes}"


def _whole(of: Comparison, width: int | None) -> Iterator[Text]:
    for first, *more in words.with_packages_together(of.of("breaks")):
        yield Text()
        yield from _breaking(first, of, width, more)
    for group in words.groups(of.of("matters"), every=True):
        yield Text()
        yield from _group(group, of, width)
    yield from _rest(of, width)


def _lines(text: str, width: int | None, indent: str, hanging: str, style: str = "") -> list[Text]:
    return [
        Text(line, style=style) for line in wrapped(harmless(text), width, indent=indent, hanging=hanging)
    ]


def _head(difference: Difference, of: Comparison, message: str = "", more: Sequence[Difference] = ()) -> str:
    """Return what breaks, which rules find it, and on which nodes.

    A finding is shown by its rule's title unless its `message` is given. `more` are packages that are missing
    like the first.
    """
    if difference.kind == "finding":
        head = message or difference.new
    elif more:
        missing = listed((f"{entry.subject} {entry.old}" for entry in (difference, *more)), _NAMED_OF_A_KIND)
        head = f"{len(more) + 1} packages are not installed: {missing}"
    else:
        old, new = (without_middle(value, _LONGEST) for value in words.values(difference))
        head = f"{difference.kind} {difference.subject}: {old} -> {new}"
    head = "  ".join(filter(None, (", ".join(difference.codes), head)))
    place = words.where(difference, of)
    return f"{head}{f' ({place})' if place else ''}"


def _breaking(
    difference: Difference, of: Comparison, width: int | None, more: Sequence[Difference]
) -> Iterator[Text]:
    yield from _lines(_head(difference, of, more=more), width, "", "  ", "bold red")
    if difference.kind == "finding":
        yield from _lines(f"before  {difference.old}", width, "  ", "          ")
    yield from _lines(f"why     {difference.why}", width, "  ", "          ")
    yield from _lines(f"do      {difference.next}", width, "  ", "          ") if difference.next else ()


def _group(group: words.Group, of: Comparison, width: int | None) -> Iterator[Text]:
    yield from _lines(f"{group.kind}{f': {group.why}' if group.why else ''}", width, "", "  ", "bold yellow")
    size = min(_WIDEST, max(len(difference.subject) for difference in group.shown))
    for difference in group.shown:
        if difference.summary:
            yield from _lines(difference.summary, width, "  ", "      ")
            continue
        old, new = (without_middle(value, _LONGEST) for value in words.values(difference))
        place = words.where(difference, of)
        change = f"before: {old}" if difference.kind == "finding" else f"{old} -> {new}"
        line = f"{difference.subject:<{size}}  {change}{f'  {place}' if place else ''}"
        yield from _lines(line, width, "  ", "      ")
        if difference.next and not group.do:
            yield from _lines(f"do  {difference.next}", width, "      ", "          ", "dim")
    if group.do:
        yield from _lines(f"do  {group.do}", width, "      ", "          ", "dim")


def _rest(of: Comparison, width: int | None) -> Iterator[Text]:
    for group in words.groups(of.of("noise"), every=True):
        yield Text()
        yield from _noise(group, of, width)
    if of.gone:
        codes = ", ".join(dict.fromkeys(code for code, _ in of.gone))
        yield Text()
        yield from _lines(f"no longer found: {codes}", width, "", "  ", "green")
    if of.not_compared:
        yield Text()
    for sentence in of.not_compared:
        yield from _lines(f"not compared: {sentence}", width, "", "  ", "dim")


def _noise(group: words.Group, of: Comparison, width: int | None) -> Iterator[Text]:
    yield Text(f"{group.kind} (no effect)", style="dim")
    for difference in group.shown:
        old, new = (without_middle(value, _LONGEST) for value in words.values(difference))
        place = words.where(difference, of)
        text = (
            f"{difference.subject}: {new}"
            if difference.kind == "fact"
            else f"{difference.subject}: {old} -> {new}"
        )
        yield from _lines(f"{text}{f'  {place}' if place else ''}", width, "  ", "      ", "dim")


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
    for difference in shown:
        place = words.where(difference, of)
        what = f"{difference.kind} {difference.subject}{f' {place}' if place else ''}"
        why = f"{', '.join(difference.codes)}: {difference.why}" if difference.codes else difference.why
        cells = (difference.weight, what, *words.values(difference), why, difference.next)
        yield f"| {' | '.join(escaped(cell) for cell in cells)} |"
    if of.not_compared or of.lost:
        yield ""
        yield from (f"* not compared: {escaped(sentence)}" for sentence in (*of.lost, *of.not_compared))
