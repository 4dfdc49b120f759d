"""A page for each rule and for each fault that logs alone show, their list, and the list of messages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from verl_doctor.toolkit.commands.explain import documentation
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.logs.signature import Signature, of_code, of_logs_alone, signatures
from verl_doctor.toolkit.rule import Check, Finding, family_of
from verl_doctor.toolkit.testing import run_check

FAMILIES: Mapping[str, str] = {
    "API": "what verl uses of Ray, transformers, tensordict and SGLang",
    "ATT": "attention backends",
    "BUILD": "the job, built by verl's own code without a GPU (`--deep`)",
    "CFG": "the launch script and its Hydra configuration",
    "CUDA": "the driver, compiled packages, compilers and GPUs",
    "DATA": "data files",
    "ENV": "environment variables: what reads them, and which processes get them",
    "HOST": "limits, CPUs, memory and disks",
    "LEFT": "what dead jobs and sleeping engines still hold",
    "LOAD": "model files and how long they take to load",
    "LOG": "faults that only a log can show",
    "NET": "names, interfaces, InfiniBand, ports, proxies and NCCL",
    "PKG": "installed packages",
    "PY": "the interpreter",
    "RAY": "the Ray cluster that the job joins",
    "SITE": "the paths of this cluster",
    "SMOKE": "rungs of the smoke test",
    "VLLM": "what verl uses of vLLM",
}
"""What the rules of each family are about."""

_MOST_LINES = 14  # of a log or of a finding that a page quotes
_MOST_FINDINGS = 6
_LINK = re.compile(r"(?<![<(\w])https?://[^\s,)>`]+[^\s,)>`.;]")
_ISSUE = re.compile(r"(?<![\w/`\[])([A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*)#(\d+)\b")
_CODE = re.compile(r"`[^`\n]*`")


def pages(known: Registry) -> dict[str, str]:
    """All of them by path."""
    rules = {f"rules/{check.code}.md": rule_page(check, known) for check in known.checks}
    logs = {f"rules/{code}.md": log_page(code, known) for code in of_logs_alone()}
    return {**rules, **logs, "rules/index.md": index(known), "rules/messages.md": messages(known)}


def rule_page(check: Check, known: Registry) -> str:
    """The page of a rule: what `explain` prints, what the rule reports, and the log lines that show it."""
    text = linked(documentation.explain(check, known))
    return "\n".join([_ORPHAN, text, *_reports(check), *_log_lines(of_code(check.code)), _BACK])


def log_page(code: str, known: Registry) -> str:
    """The page of a fault that only logs show."""
    text = linked(documentation.explain_of_logs(code, known) or "")
    return "\n".join([_ORPHAN, text, *_log_lines(of_code(code)), _BACK])


_ORPHAN = "---\norphan: true\n---\n"
_BACK = "\n---\n\n[All rules](index.md) · [All messages](messages.md)\n"


def reported(check: Check) -> Iterator[Finding]:
    """What the rule reports in those of its examples in which it speaks, each message once."""
    seen = set()
    for example in check.examples:
        if example.expect is None:
            continue
        for finding in run_check(check, *example.facts).findings:
            if finding.message not in seen:
                seen.add(finding.message)
                yield finding


def _reports(check: Check) -> Iterator[str]:
    found = list(reported(check))[:_MOST_FINDINGS]
    if not found:
        return
    yield from ("", "## What it reports", "")
    for finding in found:
        parts = {
            "found": finding.evidence.found,
            "expected": finding.evidence.wanted,
            "do": finding.remedy,
        }
        lines = [finding.message, *(f"  {name:<8} {text}" for name, text in parts.items() if text)]
        yield from _block(lines)


def _log_lines(found: Sequence[Signature]) -> Iterator[str]:
    """Lines of real logs by which `verl-doctor logs` recognises the fault."""
    logs = list(
        dict.fromkeys(example.log for signature in found for example in signature.examples if example.speaks)
    )
    if not logs:
        return
    yield from ("", "## Error messages", "", "Logs in which `verl-doctor logs` recognises it:", "")
    for log in logs:
        yield from _block(log.splitlines())


def _block(lines: Sequence[str]) -> Iterator[str]:
    shown = [line.rstrip() for line in lines[:_MOST_LINES]]
    shown += ["..."] if len(lines) > _MOST_LINES else []
    fence = "`" * max(3, 1 + max((len(run) for line in shown for run in re.findall(r"`+", line)), default=0))
    yield from (f"{fence}text", *shown, fence, "")


def index(known: Registry) -> str:
    """The list of all rules, family by family."""
    rows = sorted(documentation.rows(known), key=lambda row: (family_of(row[0]), row[0]))
    lines = [
        "# Rules",
        "",
        (
            f"{len(known.checks)} rules and {len(of_logs_alone())} faults that only a log can show. Each "
            "has a page. With an error message in hand, look it up in the [list of messages](messages.md), "
            "or let `verl-doctor logs train.log` find it."
        ),
        "",
        "```{toctree}",
        ":hidden:",
        "",
        "messages",
        "```",
        "",
    ]
    for family, of_family in groupby(rows, key=lambda row: family_of(row[0])):
        lines += [f"## {family}", "", f"{_capital(FAMILIES.get(family, 'rules of a plugin'))}.", ""]
        lines += ["| code | severity | what it finds | fix |", "|---|---|---|---|"]
        for code, severity, _, fixes, title in of_family:
            lines.append(f"| [{code}]({code}.md) | {severity} | {_cell(title)} | {_cell(fixes)} |")
        lines.append("")
    return "\n".join(lines)


def messages(known: Registry) -> str:
    """Error texts as logs have them, each with the page of the fault that it shows."""
    titles = {check.code: check.title for check in known.checks}
    by_code: dict[str, list[str]] = {}
    for signature in signatures():
        if not signature.code:
            continue
        texts = [documentation.pattern_text(parts) for parts in signature.patterns]
        by_code.setdefault(signature.code, []).extend(texts)
        titles.setdefault(signature.code, signature.title)
    lines = [
        "# Error messages",
        "",
        (
            "The texts by which `verl-doctor logs` recognises each fault. `...` stands for any text within "
            "a line. Search this page with your browser for words of the message that do not depend on your "
            "machine."
        ),
        "",
    ]
    for code in sorted(by_code):
        lines += [f"## {code}", "", f"[{_escaped(titles[code])}]({code}.md)", ""]
        lines += [*_flat_block(dict.fromkeys(by_code[code])), ""]
    return "\n".join(lines)


def _flat_block(texts: Mapping[str, None]) -> Iterator[str]:
    yield from ("````text", *texts, "````")


def linked(text: str) -> str:
    """Markdown in which addresses and issues can be followed, and nothing else is taken for markup."""
    lines = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        lines.append(line if fenced else _linked_line(line))
    return "\n".join(lines)


def _linked_line(line: str) -> str:
    """One line, what is code in it left as it is."""
    pieces = []
    at = 0
    for code in _CODE.finditer(line):
        pieces += [_linked_words(line[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*pieces, _linked_words(line[at:])])


def _linked_words(words: str) -> str:
    words = re.sub(r"<(?!https?:)", "&lt;", words)
    words = _LINK.sub(lambda found: f"<{found[0]}>", words)
    return _ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", words)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _escaped(text: str) -> str:
    return html.escape(re.sub(r"([\[\]*_`])", r"\\\1", text), quote=False)


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")
