"""The documentation of the rules: every table and page is made from the docstring in the rule's file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.console.markdown_text import with_code
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.logs.signature import Limit, Signature, of_code, of_logs_alone
from verl_doctor.toolkit.logs.stage import STAGES
from verl_doctor.toolkit.rule import Check, family_of
from verl_doctor.toolkit.system.website import page_of

_COSTS = {
    "instant": "instant: reads files and queries the interpreter",
    "live": "live: runs something in a child process for seconds; needs --deep",
    "gpu": "gpu: uses the GPU for a moment; needs --deep",
    "cluster": "cluster: queries the nodes of a Ray cluster; needs --cluster",
    "slow": "slow: takes minutes; run by verl-doctor smoke",
}
_TEXTS = 6  # of a signature that a page quotes
_PROVES = {
    "cause": "proves it",
    "weak": "proves it, unless the log shows another cause",
    "hint": "suggests it, if the log shows no other cause",
    "note": "may be related to it",
    "ended": "proves it, if nothing else failed before",
}


def rows(known: Registry, family: str = "") -> list[tuple[str, str, str, str, str]]:
    """Return code, severity, cost, fix and title of each rule, then of faults seen only in logs.

    The latter are faults that only `verl-doctor logs` reports.

    With `family`, the letters of a code, only of that family.
    """
    all_rows = [
        *(
            (check.code, check.severity, check.cost, _fixes(check, known), check.title)
            for check in known.checks
        ),
        *((code, "error", "logs", "", title) for code, title in of_logs_alone().items()),
    ]
    return [row for row in all_rows if not family or family_of(row[0]) == family]


def _fixes(check: Check, known: Registry) -> str:
    return ", ".join(f"{fix.id} ({fix.safety})" for fix in known.fixes if check.code in fix.repairs)


def table(known: Registry, family: str = "") -> Iterator[str]:
    """Yield the lines of the rules, or of those of one family, as a Markdown table."""
    yield "| code | severity | what it finds | fix |"
    yield "|---|---|---|---|"
    for code, severity, _, fixes, title in rows(known, family):
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
        lines.append(f"* skipped when one of these fails: {', '.join(sorted(check.requires))}")
    for fix in known.fixes:
        if check.code in fix.repairs:
            lines.append(f"* fix: `{fix.id}` ({fix.safety}): {fix.title}")
            lines += [f"  * needed for: {fix.needed}"] if fix.needed else []
            lines += [f"  * upstream: {fix.upstream}"] if fix.upstream else []
            lines += [f"  * restart afterwards: {fix.restart}"] if fix.restart else []
    for heading, reports in (("Reported when", True), ("Not reported when", False)):
        names = [name for name, reported in check.named_examples if reported is reports]
        lines += ["", f"## {heading}", "", *(f"* {name}" for name in names)] if names else []
    lines += _in_logs(of_code(check.code), check.title)
    return "\n".join(lines) + "\n"


def with_address(page: str, code: str) -> str:
    """Return the page of a built-in rule, with its address on the site if it has one."""
    address = page_of(code)
    return f"{page}\n{address}\n" if address else page


def explain_of_logs(code: str, known: Registry) -> str | None:
    """Return the Markdown page of the faults with this code, which only logs show; None for no such code."""
    found = [signature for signature in of_code(code) if signature.is_of_logs_alone]
    if not found:
        return None
    lines = [
        f"# {code}: {of_logs_alone()[code]}",
        "",
        "Only `verl-doctor logs` reports it, from the log of a run; no rule looks for it on a machine.",
    ]
    by_title: dict[str, list[Signature]] = {}
    for signature in sorted(found, key=lambda signature: -len(signature.patterns)):
        by_title.setdefault(signature.title, []).append(signature)
    for title, signatures in by_title.items():
        if len(by_title) > 1:
            lines += ["", f"## {title}", "", *_remedies(signatures), *_messages(signatures)]
        else:
            lines += ["", "## How to fix", "", *_remedies(signatures), *_in_logs(signatures)]
    if rules := [rule for signature in found for rule in signature.rules]:
        titles = {check.code: check.title for check in known.checks}
        lines += ["", "## Rules that may confirm it on a machine", ""]
        lines += [f"* {rule}: {titles.get(rule, '')}" for rule in dict.fromkeys(rules)]
    return "\n".join(lines) + "\n"


def _remedies(found: Sequence[Signature]) -> Iterator[str]:
    advice = ("; ".join(filter(None, (signature.otherwise, signature.remedy))) for signature in found)
    yield from dict.fromkeys(f"* do: {with_code(text)}" for text in advice)
    for signature in found:
        yield from (f"* do, {STAGES[stage]}: {with_code(remedy)}" for stage, remedy in signature.at.items())


def _in_logs(found: Sequence[Signature], title: str = "") -> list[str]:
    """Return the section about the texts by which a fault is recognised in logs.

    Faults that `logs` calls otherwise than the `title` of their rule are named, with their remedies.
    """
    lines: list[str] = []
    for signature in found:
        if title and signature.title != title:
            lines += [f"* {signature.title}", f"  * do: {with_code(signature.remedy)}"]
            lines += (f"  {line}" for line in _messages([signature]))
        else:
            lines += _messages([signature])
    return ["", "## In logs", "", *lines] if lines else []


def _messages(found: Sequence[Signature]) -> Iterator[str]:
    for signature in found:
        texts = [f"`{pattern_text(parts)}`" for parts in signature.patterns]
        more = f", and {len(texts) - _TEXTS} more" if len(texts) > _TEXTS else ""
        if texts:
            yield f"* {_PROVES[signature.kind]}: {', '.join(texts[:_TEXTS])}{more}"


def pattern_text(parts: Sequence[str | Limit]) -> str:
    """Return a pattern in readable form: `...` for anything within a line, and limits in words."""
    return "...".join(map(_text, parts))


def _text(part: str | Limit) -> str:
    if isinstance(part, str):
        return part
    return f"{part.before}({'more' if part.is_above else 'less'} than {part.bound:g}){part.after}"
