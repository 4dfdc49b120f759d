"""What is left over from dead jobs, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from verl_doctor.toolkit.commands.clean import document as words
from verl_doctor.toolkit.commands.clean.clean import Cleaned
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.leftover import Kept, Kind, Leftover, Outcome
from verl_doctor.toolkit.text import counted, harmless, in_bytes, wrapped

_STYLES = {
    "CLEAN": "bold green",
    "REMOVED": "bold green",
    "LEFT OVER": "bold yellow",
    "NOT ALL": "bold red",
    "UNKNOWN": "bold magenta",
}
_MOST_KEPT = 5
_MOST_OF_A_KIND = 5


def text_lines(cleaned: Cleaned, width: int | None, *, verbose: bool) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe."""
    word, sentence = words.headline(cleaned)
    first, *rest = wrapped(f"{word}  {sentence}", width, hanging="  ")
    yield Text.assemble((word, _STYLES[word]), first.removeprefix(word))
    yield from map(Text, rest)
    outcomes = {(one.leftover.kind, one.leftover.name): one for one in cleaned.outcomes or ()}
    kinds = {
        one.kind: [other for other in cleaned.found.leftovers if other.kind == one.kind]
        for one in cleaned.found.leftovers
    }
    for same in sorted(kinds.values(), key=lambda some: -sum(one.size or 0 for one in some)):
        yield from _of_kind(same, outcomes, width, verbose=verbose)
    yield from _kept(cleaned, width, verbose=verbose)
    for fact, why in cleaned.found.unknown:
        yield from _wrapped(f"not looked at: {why} ({fact})", width, "  ", "    ")
    for said in words.next_steps(cleaned):
        yield from _wrapped(said, width, "", "  ")


def markdown_lines(cleaned: Cleaned) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = words.headline(cleaned)
    yield f"## verl-doctor clean: {word.lower()}"
    yield ""
    yield escaped(sentence)
    if cleaned.found.leftovers:
        yield ""
        yield "| left over | kind | size | proof | state |"
        yield "|---|---|---|---|---|"
    outcomes = {(one.leftover.kind, one.leftover.name): one for one in cleaned.outcomes or ()}
    for one in cleaned.found.leftovers:
        outcome = outcomes.get((one.kind, one.name))
        state = f"{outcome.state}: {outcome.why}".rstrip(": ") if outcome else "found"
        cells = (one.name, one.kind, _size(one), "; ".join(one.proof), state)
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in cells)} |"
    if cleaned.found.kept:
        yield ""
        yield "| kept | kind | size | why |"
        yield "|---|---|---|---|"
    for kept in cleaned.found.kept:
        row = (kept.name, kept.kind, _size(kept), kept.why)
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in row)} |"
    for fact, why in cleaned.found.unknown:
        yield ""
        yield f"* not looked at: {escaped(harmless(why))} ({fact})"
    for said in words.next_steps(cleaned):
        yield ""
        yield escaped(harmless(said))


def _of_kind(
    same: list[Leftover], outcomes: Mapping[tuple[Kind, str], Outcome], width: int | None, *, verbose: bool
) -> Iterator[Text]:
    """The largest ones, and those that are still there though they were to be removed; the rest is counted."""

    def weight(one: Leftover) -> tuple[bool, int]:
        outcome = outcomes.get((one.kind, one.name))
        return outcome is None or outcome.state == "removed", -(one.size or 0)

    ordered = sorted(same, key=weight)
    stuck = sum(not weight(one)[0] for one in ordered)
    shown = ordered if verbose else ordered[: max(_MOST_OF_A_KIND, stuck)]
    for one in shown:
        yield from _leftover(one, outcomes.get((one.kind, one.name)), width, verbose=verbose)
    if rest := ordered[len(shown) :]:
        more = words.kinds_of(rest).replace(" ", " more ", 1)
        yield Text(f"  {more}{words.takes(rest, ', ')}; -v shows them", style="dim")


def _leftover(one: Leftover, outcome: Outcome | None, width: int | None, *, verbose: bool) -> Iterator[Text]:
    state = f"{outcome.state}: " if outcome else ""
    size = f", {_size(one)}" if one.size else ""
    yield from _wrapped(f"{state}{one.name} ({one.kind}{size})", width, "  ", "    ")
    if outcome is not None and outcome.why:
        yield from _wrapped(outcome.why, width, "    ", "      ")
    elif outcome is None or verbose:
        yield from (
            Text(line.plain, style="dim") for line in _wrapped("; ".join(one.proof), width, "    ", "      ")
        )


def _kept(cleaned: Cleaned, width: int | None, *, verbose: bool) -> Iterator[Text]:
    """What is kept, and why: beside leftovers only a few, unless all was asked for."""
    kept = cleaned.found.kept
    if not cleaned.found.leftovers and not verbose:
        return
    shown = kept if verbose else kept[:_MOST_KEPT]
    for one in shown:
        yield from _wrapped(f"kept: {one.name} ({one.kind}): {one.why}", width, "  ", "    ")
    if len(kept) > len(shown):
        yield Text(f"  kept: {counted(len(kept) - len(shown), 'more thing')}; -v shows them", style="dim")


def _size(one: Leftover | Kept) -> str:
    return "" if one.size is None else in_bytes(one.size)


def _wrapped(said: str, width: int | None, indent: str, hanging: str) -> Iterator[Text]:
    """Lines of a text from outside, which is made harmless."""
    yield from (Text(line) for line in wrapped(harmless(said), width, indent=indent, hanging=hanging))
