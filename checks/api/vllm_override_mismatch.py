"""VLLM109: a class of verl no longer fits the class of vLLM that it extends."""

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
_EXECUTOR = "vllm.v1.executor.abstract.Executor"
_NARROW = ApiUse(
    path=SERVER,
    line=101,
    kind="override",
    name=f"{_EXECUTOR}.collective_rpc(non_block)",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    now="method, timeout, args, kwargs, non_block",
    read_from="/env/vllm/v1/executor/abstract.py:204",
    reason="Executor.execute_model() passes it non_block, which it does not accept",
)
_NO_FUTURE = ApiUse(
    path=SERVER,
    line=92,
    kind="result",
    name=f"{_EXECUTOR}.collective_rpc(non_block)",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    now="concurrent.futures.Future",
    read_from="/env/vllm/v1/engine/core.py:343",
    reason=(
        "EngineCore.step() sets non_block and calls result() on the result, but the override ignores the "
        "parameter"
    ),
)
_ABSTRACT = ApiUse(
    path=SERVER,
    line=61,
    kind="abstract",
    name=f"{_EXECUTOR}.check_health",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    reason="Executor.check_health is abstract",
)
_FINAL = ApiUse(
    path=SERVER,
    line=44,
    kind="final",
    name="vllm.usage.usage_lib.UsageContext",
    resolution="missing",
    phase="import",
    paths=("async rollout",),
    reason="UsageContext is an enumeration with members",
    read_from="/env/vllm/usage/usage_lib.py",
)
_UNDECIDED = ApiUse(
    path=SERVER,
    line=92,
    kind="result",
    name=_NO_FUTURE.name,
    resolution="unknown",
    phase="start",
    paths=("async rollout",),
)


def _examples() -> list[Example]:
    return [
        Example("what verl overrides fits", seen()),
        Example("whether vLLM relies on it is not known", seen(_UNDECIDED)),
        Example("vLLM passes an override more than it accepts", seen(_NARROW), expect="passes it non_block"),
        Example("vLLM waits for a future that it does not get", seen(_NO_FUTURE), expect="calls result()"),
        Example("a class lacks an abstract method", seen(_ABSTRACT), expect="lacks Executor.check_health()"),
        Example("a class extends an enumeration", seen(_FINAL), expect="extends UsageContext"),
    ]


@check(
    "VLLM109",
    requires=("VLLM106",),
    paths=rollouts,
    unjudged=uses_unjudged("override", "result", "abstract", "final"),
    examples=_examples,
)
def vllm_override_mismatch(uses: VllmUses) -> Iterator[Finding]:
    """A class of verl no longer fits the class of vLLM that it extends.

    ## Why it matters

    vLLM calls verl's method instead of its own. If it passes an argument that the method does not accept, the
    call raises TypeError. If vLLM expects a future and gets a plain value, `AttributeError: ... has no
    attribute 'result'` ends the engine at the first generation. A class that lacks an abstract method cannot
    be instantiated at all, and an enumeration with members cannot be extended.

    ## How to fix

    Make the method accept what the base class accepts, and return what vLLM expects. Otherwise install a vLLM
    for which this verl was written: `verl-doctor check --tree vllm=DIR` checks a release before you install
    it.
    """
    version = uses.library.version
    yield from judged(
        breaks(uses, "override", "result", "abstract", "final"),
        lambda use: f"{use.name} {use.kind}",
        lambda group: _finding(group, version),
        lambda every: (
            f"{len(every)} methods with which verl extends vLLM do not fit vLLM {version}: "
            f"{listed((_method(use) for use in every), _SHOWN)}"
        ),
        _OTHER_RELEASE,
    )


def _finding(group: list[ApiUse], version: str) -> Finding:
    use = group[0]
    if use.kind == "final":
        message = (
            f"a class of verl extends {use.last}, which Python does not allow: in vLLM {version}, "
            f"{use.reason}"
        )
        remedy = "use the enumeration as it is"
    elif use.kind == "abstract":
        message = f"a class of verl lacks {_method(use)}(), which vLLM {version} requires"
        remedy = "implement the method"
    else:
        message = f"verl's override of {_method(use)}() does not fit vLLM {version}: {use.reason}"
        remedy = (
            "make the override accept what the base class accepts"
            if use.kind == "override"
            else f"return a {use.now}"
        )
    return finding(
        group,
        message,
        found=use.text or use.name,
        wanted=f"({use.now})" if use.kind == "override" else use.now or use.reason,
        remedy=f"{remedy}, or {_OTHER_RELEASE}",
        fix="future-from-override" if use.name.endswith("(non_block)") else None,
    )


def _method(use: ApiUse) -> str:
    """The method of the base class in its usual form."""
    return ".".join(use.name.partition("(")[0].split(".")[-2:])
