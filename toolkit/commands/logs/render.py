"""Why a run failed, for a terminal and as Markdown: verdict, next command, then the lines as proof."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.text import Text

from verl_doctor.toolkit.console.lines import next_steps as steps_to_take
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.causes import name_of, place_in_job, remedy_of
from verl_doctor.toolkit.logs.confirming import confirmation
from verl_doctor.toolkit.logs.headline import (
    FIRST_CAUSE,
    NOT_DETERMINED,
    OK,
    YOUR_CODE,
    YOUR_CONFIGURATION,
    headline,
)
from verl_doctor.toolkit.logs.lines import shown, shown_together
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.next_steps import next_steps
from verl_doctor.toolkit.logs.timeline import render
from verl_doctor.toolkit.text import counted, harmless, in_bytes, without_middle, wrapped

_STYLES = {
    OK: "bold green",
    FIRST_CAUSE: "bold red",
    YOUR_CODE: "bold red",
    YOUR_CONFIGURATION: "bold red",
    NOT_DETERMINED: "bold magenta",
}
_PLACE = re.compile(r'(.*\bFile ")([^"]+)(", line \d+.*)')
_MOST_OF_MESSAGE = 4  # lines
_MOST = 4  # entries listed besides the cause


def text_lines(
    answer: Answer, width: int | None, *, with_timeline: bool = False, verbose: bool = False
) -> Iterator[Text]:
    """Yield the lines.

    `width` is the terminal's, or None for a pipe. Without the timeline, a sentence mentions it.
    """
    word, sentence = headline(answer)
    first, *rest = wrapped(harmless(f"{word}  {sentence}"), width, hanging="  ")
    yield Text.assemble((word, _STYLES[word]), first.removeprefix(word))
    yield from map(Text, rest)
    for at, cause in enumerate(answer.reading.causes):
        if at and cause.signature is not None:
            yield from map(
                Text,
                wrapped(
                    harmless(f"also  {cause.signature.code}: {cause.signature.title}"), width, hanging="  "
                ),
            )
        yield from _proof(cause, width)
        if remedy := remedy_of(cause):
            yield from map(Text, wrapped(f"  do: {remedy}", width, hanging="    "))
        yield from _on_this_machine(answer, cause, width, verbose=verbose)
    if answer.reading.error is not None:
        yield from _proof(answer.reading.error, width)
        if remedy := remedy_of(answer.reading.error):
            yield from map(Text, wrapped(harmless(f"  do: {remedy}"), width, hanging="    "))
        if answer.reading.first is not None:
            yield from _on_this_machine(answer, answer.reading.error, width, verbose=verbose)
    yield from steps_to_take([_with_reason(step) for step in next_steps(answer)], width)
    yield from _others(answer, width)
    yield from map(Text, _start(answer, width, with_timeline=with_timeline))
    for note in answer.notes:
        yield from map(Text, wrapped(harmless(f"note: {note}"), width, hanging="  "))
    yield Text(harmless(_read(answer)), style="dim")


def _on_this_machine(
    answer: Answer, cause: LoggedError, width: int | None, *, verbose: bool
) -> Iterator[Text]:
    """Yield whether rules confirm a cause here, then a line for each of their findings, or everything."""
    if not (verified := confirmation(answer, cause)):
        return
    yield from map(Text, wrapped(harmless(f"  {verified}"), width, hanging="    "))
    found = (answer.confirmed or {}).get(name_of(cause)[0], ())
    if not found:
        return
    yield Text("  on this machine:")
    for each in found if verbose else found[:_MOST]:
        if verbose:
            yield from map(Text, wrapped(harmless(f"    {each.words}"), width, hanging="      "))
            if each.remedy:
                yield from map(Text, wrapped(harmless(f"      do: {each.remedy}"), width, hanging="        "))
        else:
            yield from map(Text, wrapped(harmless(f"    {each.line}"), width, hanging="      "))
    if len(found) > _MOST and not verbose:
        yield Text(f"    and {len(found) - _MOST} more (-v)")


def _with_reason(step: str) -> tuple[str, str]:
    command, _, why = step.partition("  # ")
    return command.rstrip(), why


def _start(answer: Answer, width: int | None, *, with_timeline: bool) -> Iterator[str]:
    """Yield how the start spent the time, below everything about the failure."""
    timeline = answer.timeline
    if with_timeline:
        yield ""
        yield from render.text_lines(timeline, width)
    elif timeline.is_worth_showing:
        yield ""
        yield from wrapped(f"{render.summary(timeline)} (--timeline)", width, hanging="  ")


def _proof(error: LoggedError, width: int | None) -> Iterator[Text]:
    who = f" ({shown(error.process)})" if error.process else ""
    yield Text(f"  {harmless(error.source)}:{error.number}{who}")
    lines = [line.expandtabs(4) for line in shown_together(error.lines)]
    for text in lines[:-1]:
        yield Text(f"    {_fitting(text, width)}")
    message = wrapped("".join(lines[-1:]), width, indent="    ", hanging="      ")
    if len(message) > _MOST_OF_MESSAGE:
        message[_MOST_OF_MESSAGE - 1 : -1] = ["      ..."]
    yield from map(Text, message)


def _fitting(text: str, width: int | None) -> str:
    """Return a line that fits the terminal.

    The place in a traceback loses the beginning of its path, another line its middle.
    """
    room = len(text) if width is None else max(width - 4, 23)
    if len(text) <= room:
        return text
    if place := _PLACE.fullmatch(text):
        before, path, after = place.groups()
        left = max(room - len(before) - len(after) - 3, len(path.rpartition("/")[2]))
        return f"{before}...{path[-left:]}{after}"
    return without_middle(text, room)


def _others(answer: Answer, width: int | None) -> Iterator[Text]:
    reading = answer.reading
    shown_above = (reading.error.source, reading.error.number) if reading.error is not None else None
    others = tuple(each for each in reading.consequences if (each.source, each.number) != shown_above)
    for title, errors in (
        ("Consequences", others),
        ("Also seen", reading.also),
        ("Possibly related", reading.hints),
    ):
        if errors:
            yield Text("")
            yield Text(f"{title}:")
        for error in errors[:_MOST]:
            name = f"{error.signature.code}: " if error.signature is not None and error.signature.code else ""
            times = f" ({error.times} times)" if error.times > 1 else ""
            place, then = place_in_job(error), shown(error.then)
            raised = f" (raised at {place})" if place else ""
            text = harmless(f"  {error.source}:{error.number}{times}: {name}{shown(error.words)}{raised}")
            yield from map(Text, wrapped(text, width, hanging="    "))
            if then:
                yield Text(harmless(f"    {then}"))
        if len(errors) > _MOST:
            yield Text(f"  and {len(errors) - _MOST} more")


def _read(answer: Answer) -> str:
    return f"read {counted(len(answer.files), 'log')}, {in_bytes(answer.size)} in {answer.seconds:.1f} s"


def markdown_lines(answer: Answer) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = headline(answer)
    yield f"## {word.capitalize()}: {escaped(harmless(sentence))}"
    reading = answer.reading
    for cause in (*reading.causes, *((reading.error,) if reading.error is not None else ())):
        yield ""
        who = f" ({escaped(shown(cause.process))})" if cause.process else ""
        yield f"{escaped(harmless(cause.source))}:{cause.number}{who}"
        yield ""
        yield from (f"    {line}" for line in shown_together(cause.lines))
        if remedy := remedy_of(cause):
            yield ""
            yield escaped(harmless(remedy))
    if steps := next_steps(answer):
        yield ""
        yield from (f"    {step}" for step in steps)
    beside = [*reading.consequences, *reading.also, *reading.hints]
    if beside:
        yield ""
        yield "| line | also in the logs |"
        yield "|---|---|"
        yield from (
            f"| {escaped(harmless(error.source))}:{error.number} | {escaped(shown(error.words))} |"
            for error in beside
        )
    if answer.timeline.is_worth_showing:
        yield ""
        yield from render.markdown_lines(answer.timeline)
    yield ""
    yield escaped(harmless(_read(answer)))
