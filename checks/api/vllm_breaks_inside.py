"""VLLM112: this vLLM imports something that the installed transformers, torch or vLLM itself lacks."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_breaks import breaks, by_cause, finding
from verl_doctor.checks.api._vllm_examples import BOTH, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, Subject, check
from verl_doctor.toolkit.text import listed

_SHOWN = 3
_CONFIG = "transformers.configuration_utils"
_TOO_NEW = tuple(
    ApiUse(
        path=f"/env/vllm/{path}",
        line=line,
        kind="inside",
        name=f"{_CONFIG}:ALLOWED_LAYER_TYPES",
        resolution="missing",
        phase="import",
        paths=BOTH,
        reason=f"{_CONFIG} has no ALLOWED_LAYER_TYPES in transformers 5.0.0",
        read_from="/env/transformers/configuration_utils.py",
    )
    for path, line in (("config/model.py", 14), ("transformers_utils/config.py", 18))
)

_OLD_TORCH = ApiUse(
    path="/env/vllm/utils/torch_utils.py",
    line=12,
    kind="inside",
    name="torch.utils:new_utility",
    resolution="missing",
    phase="import",
    paths=BOTH,
    reason="torch.utils has no new_utility in torch 2.6.0",
    read_from="/env/torch/utils/__init__.py",
)

_RENAMED = ApiUse(
    path="/env/vllm/engine/arg_utils.py",
    line=30,
    kind="inside",
    name="vllm.config:ModelConfig",
    resolution="missing",
    phase="import",
    paths=BOTH,
    reason="vllm.config has no ModelConfig in vllm 0.12.0",
    read_from="/env/vllm/config.py",
)


def _examples() -> list[Example]:
    return [
        Example("vLLM finds what it imports", seen()),
        Example(
            "vLLM was made for another transformers",
            seen(*_TOO_NEW),
            expect="vLLM 0.12.0 cannot be imported with this transformers: it imports ALLOWED_LAYER_TYPES",
        ),
        Example(
            "torch was replaced after vLLM was installed",
            seen(_OLD_TORCH),
            expect="vLLM 0.12.0 cannot be imported with this torch: it imports new_utility",
        ),
        Example(
            "a fork of vLLM renamed a class, but one module still imports it",
            seen(_RENAMED),
            expect=(
                "vLLM 0.12.0 cannot be imported: its modules import ModelConfig from another of its modules"
            ),
        ),
    ]


@check(
    "VLLM112",
    phase="import",
    requires=("VLLM106",),
    paths=rollouts,
    unjudged=uses_unjudged(),
    examples=_examples,
)
def vllm_breaks_inside(uses: VllmUses) -> Iterator[Finding]:
    """This vLLM imports something that the installed transformers or torch, or vLLM itself, does not have.

    ## Why it matters

    The names that verl imports from vLLM exist, but importing them still fails, with an ImportError from a
    file of vLLM. Each vLLM release is made for one torch release and some transformers releases, and a later
    installation may have replaced them. If vLLM's own modules lack the name, it was renamed or deleted in a
    fork while a module still imports it, or files of two vLLM releases are mixed in one folder.

    ## How to fix

    Install the release that this vLLM requires (`pip show vllm` names it), or a vLLM made for the installed
    one: `verl-doctor check --tree transformers=DIR --tree vllm=DIR` checks both before you install them. If
    the name belongs to vLLM itself, restore it, change the modules that import it, or reinstall vLLM.
    """
    for group in by_cause(breaks(uses, "inside"), _third):
        third = _third(group[0])
        names = list(dict.fromkeys(use.last for use in group))
        if third == uses.library.module:
            yield finding(
                group,
                (
                    f"vLLM {uses.library.version} cannot be imported: its modules import "
                    f"{listed(names, _SHOWN)} from another of its modules, which does not define "
                    f"{'it' if len(names) == 1 else 'them'}"
                ),
                found=group[0].reason,
                wanted="a vLLM whose modules all come from one release",
                remedy="reinstall vLLM; in a fork, change the modules that import them too",
                subject=Subject("package", "vllm", "vllm"),
            )
            continue
        yield finding(
            group,
            f"vLLM {uses.library.version} cannot be imported with this {third}: it imports "
            f"{listed(names, _SHOWN)} from it",
            found=group[0].reason,
            wanted=f"a {third} that this vLLM was made for",
            remedy=f"install a {third} release that this vLLM requires, or a vLLM made for this {third}",
            subject=Subject("package", third, "vllm"),
        )


def _third(use: ApiUse) -> str:
    """The package from which vLLM imports."""
    return use.name.partition(":")[0].partition(".")[0]
