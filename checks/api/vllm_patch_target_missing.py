"""VLLM110: verl patches a name that this vLLM does not have."""

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
_LAYERS = "vllm.model_executor.layers.quantization.fp8"
_GONE = ApiUse(
    path="/env/verl/utils/vllm/vllm_fp8_utils.py",
    line=304,
    kind="patch",
    name=f"{_LAYERS}.replace_parameter",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    when="config.quantization == 'fp8'",
    reason=f"{_LAYERS} has no replace_parameter",
)
_TRIED = ApiUse(
    path="/env/verl/utils/vllm/vllm_fp8_utils.py",
    line=304,
    kind="patch",
    name=f"{_LAYERS}.replace_parameter",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    guard="except AttributeError",
)


def _examples() -> list[Example]:
    return [
        Example("what verl patches exists", seen()),
        Example("verl handles its absence", seen(_TRIED)),
        Example(
            "what verl patches for FP8 is missing",
            seen(_GONE),
            expect=f"verl patches {_LAYERS}.replace_parameter",
        ),
    ]


@check("VLLM110", requires=("VLLM106",), paths=rollouts, unjudged=uses_unjudged("patch"), examples=_examples)
def vllm_patch_target_missing(uses: VllmUses) -> Iterator[Finding]:
    """verl patches a name that this vLLM does not have.

    ## Why it matters

    `mock.patch("vllm...")` looks the name up before it replaces it. If the name is missing, AttributeError or
    ModuleNotFoundError is raised as soon as the feature that needs the patch is turned on, such as FP8
    quantisation.

    ## How to fix

    Avoid the setting that needs the patch, or install a vLLM for which this verl was written: `verl-doctor
    check --tree vllm=DIR` checks a release before you install it.
    """
    version = uses.library.version
    yield from judged(
        breaks(uses, "patch"),
        lambda use: use.name,
        lambda group: finding(
            group,
            f"verl patches {group[0].name}, which vLLM {version} does not have",
            found=group[0].reason,
            wanted=group[0].now or group[0].name,
            remedy=_OTHER_RELEASE,
        ),
        lambda every: (
            f"verl patches {len(every)} names that vLLM {version} does not have: "
            f"{listed(('.'.join(use.name.split('.')[-2:]) for use in every), _SHOWN)}"
        ),
        _OTHER_RELEASE,
    )
