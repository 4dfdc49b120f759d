"""VLLM111: verl calls a method of vLLM's workers that they do not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_breaks import breaks, finding, judged
from verl_doctor.checks.api._vllm_examples import seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check
from verl_doctor.toolkit.text import listed

_SHOWN = 3
_OTHER_RELEASE = "use a vLLM release that this verl supports"
_ROLLOUT = "/env/verl/workers/rollout/vllm_rollout/vllm_rollout.py"
_TOO_NEW = ApiUse(
    path=_ROLLOUT,
    line=287,
    kind="sent",
    name="Worker.start_weight_update",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    when="not self.use_shm",
    reason="Worker has no start_weight_update",
    read_from="/env/vllm/v1/worker/gpu_worker.py",
)
_OF_A_MIXIN = ApiUse(
    path=_ROLLOUT,
    line=230,
    kind="sent",
    name="Worker.custom",
    resolution="unknown",
    phase="start",
    paths=("async rollout",),
)


def _examples() -> list[Example]:
    return [
        Example("the workers have every method", seen()),
        Example("whether they have it is not known", seen(_OF_A_MIXIN)),
        Example("a method came with a later vLLM", seen(_TOO_NEW), expect="calls start_weight_update()"),
    ]


@check("VLLM111", requires=("VLLM106",), paths=rollouts, unjudged=uses_unjudged("sent"), examples=_examples)
def vllm_worker_method_missing(uses: VllmUses) -> Iterator[Finding]:
    """verl calls a method of vLLM's workers that they do not have.

    ## Why it matters

    `collective_rpc("name")` sends the name to every worker, which looks it up and raises AttributeError or
    NotImplementedError, far from the line that requested the call.

    ## How to fix

    Avoid the setting that needs the method, or install a vLLM for which this verl was written: `verl-doctor
    check --tree vllm=DIR` checks a release before you install it.
    """
    version = uses.library.version
    yield from judged(
        breaks(uses, "sent"),
        lambda use: use.name,
        lambda group: finding(
            group,
            f"verl calls {group[0].last}() on vLLM's workers, but neither vLLM {version} nor verl defines it",
            found=group[0].reason,
            wanted=group[0].name,
            remedy=_OTHER_RELEASE,
        ),
        lambda every: (
            f"verl calls {len(every)} methods on vLLM's workers that vLLM {version} does not have: "
            f"{listed((use.last for use in every), _SHOWN)}"
        ),
        _OTHER_RELEASE,
    )
