"""VLLM102: verl imports something that this vLLM does not have, at least not there."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._vllm_breaks import breaks, by_cause, finding
from verl_doctor.toolkit.fact_trees import Tree
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check

VERL = Tree("/env/verl", "verl", "0.6.1", "site-packages")
VLLM = Tree("/env/vllm", "vllm", "0.12.0", "site-packages")
PATHS = ("sync rollout", "async rollout")
MOVED = VllmUse(
    "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py", 38, "import", "vllm.utils:FlexibleArgumentParser",
    "missing", "import", ("async rollout",), now="vllm.utils.argparse_utils.FlexibleArgumentParser",
    reason="vllm.utils has no FlexibleArgumentParser", read_from="/env/vllm/utils/__init__.py",
)  # fmt: skip
TRIED = VllmUse(
    "/env/verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py", 66, "import",
    "vllm.worker.worker_base:WorkerWrapperBase", "missing", "import", PATHS, guard="except ModuleNotFoundError",
)  # fmt: skip


@check(
    "VLLM102",
    paths=rollouts,
    examples=[
        Example("every import is there", (VllmUses(VERL, VLLM, (), 170, PATHS),)),
        Example("verl tries the old place, then the new one", (VllmUses(VERL, VLLM, (TRIED,), 170, PATHS),)),
        Example(
            "a class has moved",
            (VllmUses(VERL, VLLM, (MOVED,), 170, PATHS),),
            expect="it is in vllm.utils.argparse_utils now",
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
    this verl was written: `verl-doctor matrix` lists the pairs that fit.
    """
    for group in by_cause(breaks(uses, "import"), lambda use: use.name):
        use = group[0]
        module, _, name = use.name.partition(":")
        where = f": it is in {use.now.rpartition('.')[0]} now" if use.now else ""
        yield finding(
            group,
            f"verl imports {name or module} from {module}, which vLLM {uses.vllm.version} does not have there{where}"
            if name
            else f"verl imports {module}, which vLLM {uses.vllm.version} does not have",
            found=use.reason,
            wanted=use.now or use.name.replace(":", "."),
            remedy=f"import {name} from {use.now.rpartition('.')[0]}, and from {module} where that fails"
            if use.now
            else "use a vLLM release that this verl supports",
        )
