"""VLLM102: verl imports something that this vLLM does not have, at least not there."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._vllm_breaks import SHOWN, breaks, finding, judged
from verl_doctor.checks._vllm_examples import BOTH, SERVER, seen
from verl_doctor.checks._vllm_renames import REMOVED
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check
from verl_doctor.toolkit.text import listed

OTHER_RELEASE = "use a vLLM release that this verl supports"
_MOVED = VllmUse(
    SERVER, 38, "import", "vllm.utils:FlexibleArgumentParser",
    "missing", "import", ("async rollout",), now="vllm.utils.argparse_utils.FlexibleArgumentParser",
    reason="vllm.utils has no FlexibleArgumentParser", read_from="/env/vllm/utils/__init__.py",
)  # fmt: skip
_TRIED = VllmUse(
    "/env/verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py", 66, "import",
    "vllm.worker.worker_base:WorkerWrapperBase", "missing", "import", BOTH, guard="except ModuleNotFoundError",
)  # fmt: skip
_OPTIONAL = tuple(
    VllmUse("/env/verl/utils/qat/vllm_patch.py", line, "import", f"vllm.model_executor:{name}", "missing", "start", BOTH, "is_marlin")
    for line, name in ((371, "swizzle_blockscale"), (592, "replace_parameter"))
)  # fmt: skip


@check(
    "VLLM102",
    paths=rollouts,
    examples=[
        Example("every import is there", seen()),
        Example("verl tries the old place, then the new one", seen(_TRIED)),
        Example(
            "a class has moved",
            seen(_MOVED),
            expect="it is in vllm.utils.argparse_utils now",
        ),
        Example(
            "two names that are needed under a setting only",
            seen(*_OPTIONAL),
            expect="verl imports 2 names that vLLM 0.12.0 does not have there: swizzle_blockscale, replace_parameter",
        ),
    ],
)
def vllm_import_missing(uses: VllmUses) -> Iterator[Finding]:
    """Verl imports a name that this vLLM does not have.

    ## Why it matters
    The module fails with ImportError when it is loaded, on every node, and with it each rollout path that loads it.
    vLLM moves its internals between releases; a verl release follows only some of them.

    ## How to fix
    Where the finding says that the name lives elsewhere now, import it from there. Otherwise install a vLLM for which
    this verl was written: `verl-doctor check --vllm DIR` judges one before it is installed.
    """
    version = uses.vllm.version
    yield from judged(
        breaks(uses, "import"),
        lambda use: use.name,
        lambda group: _said(group, version),
        lambda every: (
            f"verl imports {len(every)} names that vLLM {version} does not have there: "
            f"{listed((use.last for use in every), SHOWN)}"
        ),
    )


def _said(group: list[VllmUse], version: str) -> Finding:
    use = group[0]
    module, _, name = use.name.partition(":")
    now = "" if use.name in REMOVED else use.now.rpartition(".")[0]
    what = f"{name} from {module}" if name else module
    where = f": it is in {now} now" if now else f": {REMOVED[use.name]}" if use.name in REMOVED else ""
    return finding(
        group,
        f"verl imports {what}, which vLLM {version} does not have{' there' if now else ''}{where}",
        found=use.reason,
        wanted=use.now if now else use.name.replace(":", "."),
        remedy=f"import {name} from {now}, and from {module} where that fails" if now else OTHER_RELEASE,
    )
