"""VLLM102: verl imports a name that this vLLM does not have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_messages import missing_imports
from verl_doctor.checks.api._vllm_examples import BOTH, SERVER, seen
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

_MOVED = ApiUse(
    path=SERVER,
    line=38,
    kind="import",
    name="vllm.utils:FlexibleArgumentParser",
    resolution="missing",
    phase="import",
    paths=("async rollout",),
    now="vllm.utils.argparse_utils.FlexibleArgumentParser",
    reason="vllm.utils has no FlexibleArgumentParser",
    read_from="/env/vllm/utils/__init__.py",
)
_TRIED = ApiUse(
    path="/env/verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py",
    line=66,
    kind="import",
    name="vllm.worker.worker_base:WorkerWrapperBase",
    resolution="missing",
    phase="import",
    paths=BOTH,
    guard="except ModuleNotFoundError",
)
_OPTIONAL = tuple(
    ApiUse(
        path="/env/verl/utils/qat/vllm_patch.py",
        line=line,
        kind="import",
        name=f"vllm.model_executor:{name}",
        resolution="missing",
        phase="start",
        paths=BOTH,
        when="is_marlin",
    )
    for line, name in ((371, "swizzle_blockscale"), (592, "replace_parameter"))
)


def _examples() -> list[Example]:
    return [
        Example("every imported name exists", seen()),
        Example("verl tries the old place, then the new one", seen(_TRIED)),
        Example(
            "a class has moved",
            seen(_MOVED),
            expect="has it in vllm.utils.argparse_utils",
        ),
        Example(
            "two names that only one setting needs",
            seen(*_OPTIONAL),
            expect=(
                "verl imports 2 names from modules where vLLM 0.12.0 does not have them: "
                "swizzle_blockscale, replace_parameter"
            ),
        ),
    ]


@check("VLLM102", requires=("VLLM106",), paths=rollouts, unjudged=uses_unjudged("import"), examples=_examples)
def vllm_import_missing(uses: VllmUses) -> Iterator[Finding]:
    """verl imports a name that this vLLM does not have.

    ## Why it matters

    The module raises ImportError when it is loaded, on every node, and each rollout that loads it fails. vLLM
    moves its internals between releases, and a verl release follows only some of these moves.

    ## How to fix

    If the finding shows where the name is now, import it from there. Otherwise install a vLLM for which this
    verl was written: `verl-doctor check --tree vllm=DIR` checks a release before you install it.
    """
    yield from missing_imports(uses)
