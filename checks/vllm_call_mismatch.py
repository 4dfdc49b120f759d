"""VLLM103: verl calls something of vLLM with arguments that it does not take."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._vllm_breaks import SHOWN, breaks, finding, judged
from verl_doctor.checks._vllm_examples import SERVER, seen
from verl_doctor.toolkit.fact_vllm_uses import VllmUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, check
from verl_doctor.toolkit.text import listed

_TOO_MANY = VllmUse(
    SERVER, 340, "positional", "vllm.entrypoints.openai.api_server.init_app_state(4)", "missing", "start",
    ("async rollout",), now="engine_client, state, args", read_from="/env/vllm/entrypoints/openai/api_server.py",
)  # fmt: skip
_RENAMED = VllmUse(
    SERVER, 332, "keyword", "vllm.v1.engine.async_llm.AsyncLLM.from_vllm_config(disable_log_requests)", "missing",
    "start", ("async rollout",), now="enable_log_requests",
)  # fmt: skip


@check(
    "VLLM103",
    paths=rollouts,
    examples=[
        Example("every call fits", seen()),
        Example("a rename that VLLM101 reports", seen(_RENAMED)),
        Example(
            "a function takes one argument less",
            seen(_TOO_MANY),
            expect="init_app_state() is called with 4 positional arguments",
        ),
    ],
)
def vllm_call_mismatch(uses: VllmUses) -> Iterator[Finding]:
    """Verl calls vLLM with arguments that it does not take.

    ## Why it matters
    The call raises TypeError when it is reached: at engine start, after the model has been loaded, or later. Where as
    many arguments are taken in another order, nothing raises and the values land in the wrong parameters.

    ## How to fix
    Change the call to the parameters that the finding shows, or install a vLLM for which this verl was written:
    `verl-doctor check --vllm DIR` judges one before it is installed.
    """
    kinds = ("keyword", "positional", "required", "meaning")
    version = uses.vllm.version
    yield from judged(
        breaks(uses, *kinds),
        lambda use: f"{use.name} {use.kind}",
        lambda group: finding(
            group,
            f"{_mismatch(group[0])} in vLLM {version}",
            found=group[0].name,
            wanted=_wanted(group[0]),
            remedy="change the call, or use a vLLM release that this verl supports",
        ),
        lambda every: (
            f"verl makes {len(every)} calls that vLLM {version} does not take: "
            f"{listed(('{}({})'.format(*_parts(use)) for use in every), SHOWN)}"
        ),
    )


def _parts(use: VllmUse) -> tuple[str, str]:
    """The callee as people write it, and the argument."""
    callee, _, argument = use.name.rstrip(")").partition("(")
    words = callee.split(".")
    return ".".join(words[-2:] if words[-2][:1].isupper() else words[-1:]), argument


def _mismatch(use: VllmUse) -> str:
    callee, argument = _parts(use)
    match use.kind:
        case "keyword":
            return f"{callee}() is called with the keyword {argument}, which it does not take"
        case "positional":
            return f"{callee}() is called with {argument} positional arguments, more than it takes"
        case "required":
            return f"{callee}() is called without {argument}, which it requires"
    return f"{callee}() is called with ({argument}), while its parameters stand in another order"


def _wanted(use: VllmUse) -> str:
    if use.kind == "keyword":
        return f"{use.now}?" if use.now else "a keyword that it takes"
    return f"({use.now})"
