"""The rules as documentation: one text, in the rule's own file, from which every table and page is made.

`python -m verl_doctor.toolkit.documentation README.md` writes the table of the rules and the card of the commonest errors into the README; with `--check`
it only says whether they are stale (exit code 1).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit import quick_card, registry
from verl_doctor.toolkit.registry import Registry
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.signature import Limit, Signature, of_code, of_logs_alone

_PARTS = (
    "card",
    "rules",
)  # of a page, each between "<!-- NAME: generated, do not edit -->" and "<!-- end of NAME -->"
_COSTS = {
    "instant": "instant: reads files and asks the interpreter",
    "live": "live: tries something out in a child process, takes seconds, needs --deep",
    "gpu": "gpu: uses the GPU for a moment, needs --deep",
    "cluster": "cluster: asks a Ray cluster, needs --cluster",
    "slow": "slow: takes minutes; verl-doctor smoke runs it",
}
_TEXTS = 6  # of a signature that a page quotes
_CERTAIN = {
    "cause": "proves it",
    "weak": "proves it, unless another cause is told",
    "hint": "a hint, where nothing else is told",
    "note": "worth a look",
}


def rows(known: Registry) -> list[tuple[str, str, str, str, str]]:
    """Code, severity, cost, fix and title of each rule, then of what only `verl-doctor logs` tells."""
    return [
        *(
            (check.code, check.severity, check.cost, _fixes(check, known), check.title)
            for check in known.checks
        ),
        *((one.code, "error", "logs", "", one.title) for one in of_logs_alone()),
    ]


def _fixes(check: Check, known: Registry) -> str:
    return ", ".join(f"{fix.id} ({fix.safety})" for fix in known.fixes if fix.repairs == check.code)


def table(known: Registry) -> Iterator[str]:
    """The rules as a Markdown table."""
    yield "| code | severity | what it finds | fix |"
    yield "|---|---|---|---|"
    for code, severity, _, fixes, title in rows(known):
        yield f"| {code} | {severity} | {title} | {fixes} |"


def explain(check: Check, known: Registry) -> str:
    """One rule as a Markdown page."""
    lines = [f"# {check.code}: {check.title}", "", check.documentation, "", "## In short", ""]
    lines += [
        f"* severity: {check.severity}",
        f"* cost: {_COSTS[check.cost]}",
        f"* since: verl-doctor {check.since}",
    ]
    if check.requires:
        lines.append(f"* silent when one of these failed: {', '.join(sorted(check.requires))}")
    for fix in known.fixes:
        if fix.repairs == check.code:
            lines.append(f"* fix: `{fix.id}` ({fix.safety}): {fix.title}")
            lines += [f"  * needed: {fix.needed}"] if fix.needed else []
            lines += [f"  * upstream: {fix.upstream}"] if fix.upstream else []
            lines += [f"  * afterwards: {fix.restart}"] if fix.restart else []
    for heading, speaking in (("It speaks", True), ("It is silent", False)):
        names = [example.name for example in check.examples if (example.expect is not None) is speaking]
        lines += ["", f"## {heading} when", "", *(f"* {name}" for name in names)] if names else []
    lines += _in_logs(of_code(check.code))
    return "\n".join(lines) + "\n"


def explain_of_logs(code: str, known: Registry) -> str | None:
    """A fault that only logs tell as a Markdown page; None when there is no such code."""
    found = [one for one in of_code(code) if one.is_of_logs_alone]
    if not found:
        return None
    lines = [
        f"# {code}: {found[0].title}",
        "",
        "No rule looks for it: verl-doctor logs names it, from what a run said.",
        "",
    ]
    lines += ["## How to fix", ""]
    lines += [f"* {remedy}" for remedy in dict.fromkeys(one.remedy for one in found)]
    if rules := [rule for one in found for rule in one.rules]:
        titles = {check.code: check.title for check in known.checks}
        lines += ["", "## What may confirm it on a machine", ""]
        lines += [f"* {rule}: {titles.get(rule, '')}" for rule in dict.fromkeys(rules)]
    return "\n".join([*lines, *_in_logs(found)]) + "\n"


def _in_logs(found: Sequence[Signature]) -> list[str]:
    """The texts by which a fault is known in logs."""
    lines = ["", "## In logs", ""] if found else []
    for one in found:
        texts = [f"`{''.join(_text(part) for part in _starred(parts))}`" for parts in one.patterns]
        more = f", and {len(texts) - _TEXTS} more" if len(texts) > _TEXTS else ""
        lines.append(f"* {_CERTAIN[one.kind]}: {', '.join(texts[:_TEXTS])}{more}")
    return lines


def _starred(parts: Sequence[str | Limit]) -> Iterator[str | Limit]:
    for at, part in enumerate(parts):
        yield from ["..."] if at else []
        yield part


def _text(part: str | Limit) -> str:
    if isinstance(part, str):
        return part
    return f"{part.before}({'more' if part.is_above else 'less'} than {part.bound:g}){part.after}"


def with_parts(text: str, known: Registry) -> str:
    """A page with each generated part made anew between its two marks. Raises ValueError when the marks are not there."""
    for name, lines in zip(_PARTS, (quick_card.card(), table(known)), strict=True):
        start, end = f"<!-- {name}: generated, do not edit -->", f"<!-- end of {name} -->"
        before, begun, rest = text.partition(start)
        _, ended, after = rest.partition(end)
        if not begun or not ended:
            raise ValueError(f"the page needs the marks {start} and {end}")
        text = "\n".join([before + start, *lines, end + after])
    return text


def main(arguments: list[str]) -> int:
    """Write the generated parts into a page, or check them."""
    page = Path(arguments[0])
    old = page.read_text(encoding="utf-8")
    new = with_parts(old, registry.load())
    if "--check" in arguments:
        if old != new:
            print(f"{page}: a generated part is stale; run python -m {__spec__.name} {page}", file=sys.stderr)
        return int(old != new)
    page.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
