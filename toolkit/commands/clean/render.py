"""What is left over from dead jobs, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from verl_doctor.toolkit.commands.clean import document as words
from verl_doctor.toolkit.commands.clean.clean import Cleaned, Run
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
    outcomes = {(outcome.leftover.kind, outcome.leftover.name): outcome for outcome in cleaned.outcomes or ()}
    kinds = {
        leftover.kind: [other for other in cleaned.found.leftovers if other.kind == leftover.kind]
        for leftover in cleaned.found.leftovers
    }
    for same in sorted(kinds.values(), key=lambda some: -sum(leftover.size or 0 for leftover in some)):
        yield from _of_kind(same, outcomes, width, verbose=verbose)
    yield from _kept(cleaned, width, verbose=verbose)
    if cleaned.run is not None:
        yield from _appeared(cleaned.run, width, verbose=verbose)
        for sentence in words.of_run(cleaned.run):
            yield from _wrapped(sentence, width, "  ", "    ")
    for fact, why in cleaned.found.unknown:
        yield from _wrapped(f"not examined: {why} ({fact})", width, "  ", "    ")
    for next_step in words.next_steps(cleaned):
        yield from _wrapped(next_step, width, "", "  ")


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
    outcomes = {(outcome.leftover.kind, outcome.leftover.name): outcome for outcome in cleaned.outcomes or ()}
    for leftover in cleaned.found.leftovers:
        outcome = outcomes.get((leftover.kind, leftover.name))
        state = f"{outcome.state}: {outcome.why}".rstrip(": ") if outcome else "found"
        cells = (leftover.name, leftover.kind, _size(leftover), "; ".join(leftover.proof), state)
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in cells)} |"
    if cleaned.found.kept:
        yield ""
        yield "| kept | kind | size | why |"
        yield "|---|---|---|---|"
    for kept in cleaned.found.kept:
        row = (kept.name, kept.kind, _size(kept), kept.why)
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in row)} |"
    for entry in cleaned.run.appeared if cleaned.run else ():
        yield ""
        yield f"* appeared while the job ran: {escaped(harmless(entry.name))} ({entry.kind}): {entry.why}"
    for sentence in words.of_run(cleaned.run) if cleaned.run else ():
        yield ""
        yield escaped(harmless(sentence))
    for fact, why in cleaned.found.unknown:
        yield ""
        yield f"* not examined: {escaped(harmless(why))} ({fact})"
    for next_step in words.next_steps(cleaned):
        yield ""
        yield escaped(harmless(next_step))


def _of_kind(
    same: list[Leftover], outcomes: Mapping[tuple[Kind, str], Outcome], width: int | None, *, verbose: bool
) -> Iterator[Text]:
    """Yield the largest ones, and those that could not be removed; the rest are counted."""

    def weight(leftover: Leftover) -> tuple[bool, int]:
        outcome = outcomes.get((leftover.kind, leftover.name))
        return outcome is None or outcome.state == "removed", -(leftover.size or 0)

    ordered = sorted(same, key=weight)
    stuck = sum(not weight(leftover)[0] for leftover in ordered)
    shown = ordered if verbose else ordered[: max(_MOST_OF_A_KIND, stuck)]
    for leftover in shown:
        yield from _leftover(leftover, outcomes.get((leftover.kind, leftover.name)), width, verbose=verbose)
    if rest := ordered[len(shown) :]:
        more = words.kinds_of(rest).replace(" ", " more ", 1)
        yield Text(f"  {more}{words.takes(rest, ', ')}; -v shows all", style="dim")


def _leftover(
    leftover: Leftover, outcome: Outcome | None, width: int | None, *, verbose: bool
) -> Iterator[Text]:
    state = f"{outcome.state}: " if outcome else ""
    size = f", {_size(leftover)}" if leftover.size else ""
    yield from _wrapped(f"{state}{leftover.name} ({leftover.kind}{size})", width, "  ", "    ")
    if outcome is not None and outcome.why:
        yield from _wrapped(outcome.why, width, "    ", "      ")
    elif outcome is None or verbose:
        yield from (
            Text(line.plain, style="dim")
            for line in _wrapped("; ".join(leftover.proof), width, "    ", "      ")
        )


def _kept(cleaned: Cleaned, width: int | None, *, verbose: bool) -> Iterator[Text]:
    """Yield what is kept, and why: only a few if there are leftovers, unless everything is requested."""
    kept = cleaned.found.kept
    if not cleaned.found.leftovers and not verbose and cleaned.run is None:
        return
    shown = kept if verbose else kept[:_MOST_KEPT]
    for kept_entry in shown:
        yield from _wrapped(
            f"kept: {kept_entry.name} ({kept_entry.kind}): {kept_entry.why}", width, "  ", "    "
        )
    if len(kept) > len(shown):
        yield Text(f"  kept: {counted(len(kept) - len(shown), 'more item')}; -v shows all", style="dim")


def _appeared(run: Run, width: int | None, *, verbose: bool) -> Iterator[Text]:
    """Yield what appeared while the job ran and may be another job's."""
    if not run.appeared:
        return
    more = "" if verbose else "; -v shows all"
    yield from _wrapped(
        f"appeared while it ran, and nothing shows whose they are: {words.kinds_of(run.appeared)}{more}",
        width,
        "  ",
        "    ",
    )
    for entry in run.appeared if verbose else ():
        yield from _wrapped(entry.name, width, "    ", "      ")


def _size(leftover: Leftover | Kept) -> str:
    return "" if leftover.size is None else in_bytes(leftover.size)


def _wrapped(text: str, width: int | None, indent: str, hanging: str) -> Iterator[Text]:
    """Wrap untrusted text, with control characters made harmless."""
    yield from (Text(line) for line in wrapped(harmless(text), width, indent=indent, hanging=hanging))
