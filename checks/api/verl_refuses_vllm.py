"""VLLM106: verl itself refuses this vLLM release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.api._api_breaks import by_cause, finding
from verl_doctor.checks.api._vllm_examples import BOTH, SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_FLOOR = ApiUse(
    path="/env/verl/third_party/vllm/__init__.py",
    line=55,
    kind="refusal",
    name=(
        "vllm version 0.12.0 not supported and SGLang also not Found. Currently supported vllm versions are "
        "0.18.0+"
    ),
    resolution="missing",
    phase="import",
    paths=BOTH,
    reason="vs.parse(package_version) < vs.parse('0.18.0')",
)
_UNDER_A_SETTING = ApiUse(
    path=SERVER,
    line=446,
    kind="refusal",
    name="rollout.enable_rollout_routing_replay=True requires vLLM >= 0.22.0",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    when="self.config.enable_rollout_routing_replay",
    reason="_VLLM_VERSION < version.parse('0.22.0')",
)
_BEHIND = ApiUse(
    path=SERVER,
    line=38,
    kind="import",
    name="vllm.utils:get_tcp_uri",
    resolution="missing",
    phase="import",
    paths=("async rollout",),
)


def _examples() -> list[Example]:
    return [
        Example("verl accepts this release", seen()),
        Example("verl requires a newer one", seen(_FLOOR), expect="verl refuses vLLM 0.12.0"),
        Example(
            "anything else that does not fit is only counted",
            seen(_FLOOR, _BEHIND),
            expect="this hides 1 other place that does not fit",
        ),
        Example(
            "one feature requires a newer one",
            seen(_UNDER_A_SETTING),
            expect="only when self.config.enable_rollout_routing_replay",
        ),
    ]


@check("VLLM106", phase="import", paths=rollouts, unjudged=uses_unjudged(), examples=_examples)
def verl_refuses_vllm(uses: VllmUses) -> Iterator[Finding]:
    """verl itself refuses this vLLM release.

    ## Why it matters

    verl compares the version of vLLM with those for which it was written, and raises an exception before
    anything else is loaded, so no rollout starts. Whatever else does not fit comes after that line and is not
    reported separately.

    ## How to fix

    Install a vLLM release that the message names: `verl-doctor check --tree vllm=DIR` checks a release before
    you install it. If SGLang is installed too, a verl that refuses an old vLLM starts all the same, and fails
    when it uses vLLM.
    """
    refused = [use for use in uses.uses if use.kind == "refusal" and use.breaks]
    certain = [use for use in refused if use.paths and not use.when]
    for group in by_cause(certain or refused, lambda use: use.name):
        use = group[0]
        refusal = finding(
            group,
            f"verl refuses vLLM {uses.library.version}: {use.name}",
            found=use.reason,
            wanted="a release that verl accepts",
            remedy="install a vLLM release that this verl accepts",
            subject=Subject("package", "vllm", use.name),
        )
        hidden = {(other.path, other.line) for other in uses.uses if other.breaks and other.kind != use.kind}
        if refusal.stops:
            refusal = replace(refusal, fix="consistent-install")
        if refusal.stops and hidden:
            behind = (
                f"this hides {counted(len(hidden), 'other place')} that "
                f"{'does' if len(hidden) == 1 else 'do'} not fit"
            )
            refusal = replace(refusal, message=f"{refusal.message} ({behind})")
        yield refusal
