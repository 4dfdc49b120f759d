"""How far a smoke test climbed, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung
from verl_doctor.toolkit.commands.smoke import document as words
from verl_doctor.toolkit.console.lines import next_steps
from verl_doctor.toolkit.console.markdown_text import code as in_code
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.text import harmless, wrapped

_STYLES = {"ok": "bold green", "failures": "bold red", "could_not_check": "bold magenta"}
_WORDS = {"passed": "ok", "failed": "FAILED", "not applicable": "n/a", "not reached": "not reached"}
_INDENT = "     "


def text_lines(run: SmokeRun, report: Report, width: int | None) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe."""
    word, sentence = words.headline(run, report)
    first, *rest = wrapped(harmless(f"{word}  {sentence}"), width, hanging="  ")
    yield Text.assemble((word, _STYLES[words.verdict(run, report)]), first.removeprefix(word))
    yield from map(Text, rest)
    for rung in run.rungs:
        yield Text("")
        yield from map(Text, _rung_lines(rung, width))
    others = words.other_findings(run, report)
    if others:
        yield Text("")
    for code, finding in others:
        text = f"verl-doctor check: {code} {finding.message}"
        yield from map(Text, wrapped(harmless(text), width, hanging="  "))
    if run.broken is not None and run.broken.code:
        yield from next_steps([(f"verl-doctor explain {run.broken.code}", "")], width)


def _rung_lines(rung: SmokeRung, width: int | None) -> Iterator[str]:
    seconds = f"{rung.seconds:.1f} s" if rung.status in {"passed", "failed"} else ""
    yield harmless(f"  {rung.number}  {rung.name:<18} {_WORDS[rung.status]:<7} {seconds:>8}").rstrip()
    cause = f"{rung.code} {rung.cause}".strip()
    for note in (words.steps(rung), cause, *rung.notes):
        if note:
            yield from wrapped(harmless(note), width, indent=_INDENT, hanging=_INDENT + "  ")
    for line in rung.lines:
        yield harmless(f"{_INDENT}| {line.strip()}")[: width or None]
    if rung.remedy:
        yield from wrapped(harmless(f"try: {rung.remedy}"), width, indent=_INDENT, hanging=_INDENT + "  ")
    if rung.log:
        yield from wrapped(harmless(f"log: {rung.log}"), width, indent=_INDENT, hanging=_INDENT + "  ")


def markdown_lines(run: SmokeRun, report: Report) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = words.headline(run, report)
    yield f"## verl-doctor smoke: {word}"
    yield ""
    yield escaped(harmless(sentence))
    yield ""
    yield "| rung | what | state | seconds | how far |"
    yield "|---|---|---|---|---|"
    for rung in run.rungs:
        cause = " ".join(filter(None, (rung.code, rung.cause))) or words.steps(rung)
        cells = (str(rung.number), rung.name, rung.status, f"{rung.seconds:.1f}", cause)
        yield f"| {' | '.join(escaped(harmless(cell)) for cell in cells)} |"
    broken = run.broken
    if broken is not None:
        yield ""
        yield from (f"    {harmless(line)}" for line in broken.lines)
        yield ""
        yield from (f"* try: {escaped(harmless(remedy))}" for remedy in [broken.remedy] if remedy)
        yield from (f"* log: {in_code(log)}" for log in [broken.log] if log)
    for code, finding in words.other_findings(run, report):
        yield f"* verl-doctor check: {code} {escaped(harmless(finding.message))}"
