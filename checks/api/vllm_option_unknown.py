"""VLLM108: verl passes vLLM a command-line option that this vLLM does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_breaks import breaks, finding, judged
from verl_doctor.checks.api._vllm_examples import SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check
from verl_doctor.toolkit.text import listed

_SHOWN = 3
_OTHER_RELEASE = "use a vLLM release that this verl supports"
_TOO_NEW = ApiUse(
    path=SERVER,
    line=266,
    kind="option",
    name="--logprobs-mode",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    read_from="/env/vllm/engine/arg_utils.py",
)
_SEVERAL_NODES = tuple(
    ApiUse(
        path=SERVER,
        line=line,
        kind="option",
        name=name,
        resolution="missing",
        phase="start",
        paths=("async rollout",),
        when="self.nnodes > 1",
    )
    for line, name in ((328, "--master-addr"), (330, "--node-rank"))
)


def _examples() -> list[Example]:
    return [
        Example("vLLM has every option", seen()),
        Example("an option came with a later vLLM", seen(_TOO_NEW), expect="--logprobs-mode"),
        Example(
            "options that only several nodes need",
            seen(*_SEVERAL_NODES),
            expect=(
                "2 options that vLLM 0.12.0 does not have: --master-addr, --node-rank (only when "
                "self.nnodes > 1)"
            ),
        ),
    ]


@check("VLLM108", requires=("VLLM106",), paths=rollouts, unjudged=uses_unjudged("option"), examples=_examples)
def vllm_option_unknown(uses: VllmUses) -> Iterator[Finding]:
    """verl passes vLLM a command-line option that this vLLM does not have.

    ## Why it matters

    verl writes a command line, `serve MODEL --dtype ...`, and lets vLLM's own parser read it. At an unknown
    option, the parser ends the process: `error: unrecognized arguments`, exit code 2, in each rollout server.

    ## How to fix

    Use the option that the finding suggests, or drop the setting that adds it. Otherwise install a vLLM for
    which this verl was written: `verl-doctor check --tree vllm=DIR` checks a release before you install it.
    """
    version = uses.library.version
    yield from judged(
        breaks(uses, "option"),
        lambda use: use.name,
        lambda group: finding(
            group,
            f"verl starts vLLM with {group[0].name}, an option that vLLM {version} does not have",
            found=group[0].text or group[0].name,
            wanted=f"{group[0].now}?" if group[0].now else "an option that this vLLM has",
            remedy=_OTHER_RELEASE,
        ),
        lambda every: (
            f"verl starts vLLM with {len(every)} options that vLLM {version} does not have: "
            f"{listed((use.name for use in every), _SHOWN)}"
        ),
        _OTHER_RELEASE,
    )
