"""VLLM101: verl uses `disable_log_requests`, which vLLM renamed with the opposite meaning."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_breaks import by_cause, finding
from verl_doctor.checks.api._vllm_examples import SERVER, seen
from verl_doctor.checks.api._vllm_renames import LOG_REQUESTS
from verl_doctor.checks.api._vllm_unjudged import uses_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses, rollouts
from verl_doctor.toolkit.rule import Example, Finding, Subject, check

_READ = ApiUse(
    path=SERVER,
    line=332,
    kind="attribute",
    name="vllm.engine.arg_utils.AsyncEngineArgs.disable_log_requests",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    now="enable_log_requests",
    read_from="/env/vllm/engine/arg_utils.py",
)
_GIVEN = ApiUse(
    path=SERVER,
    line=332,
    kind="keyword",
    name="vllm.v1.engine.async_llm.AsyncLLM.from_vllm_config(disable_log_requests)",
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    now="enable_log_requests",
    read_from="/env/vllm/v1/engine/async_llm.py",
)
_PROBED = ApiUse(
    path=SERVER,
    line=332,
    kind="attribute",
    name=_READ.name,
    resolution="missing",
    phase="start",
    paths=("async rollout",),
    guard="hasattr(engine_args, 'disable_log_requests')",
    now="enable_log_requests",
)


def _examples() -> list[Example]:
    return [
        Example("vLLM has every name that verl uses", seen()),
        Example("verl tests before it reads", seen(_PROBED)),
        Example(
            "the renamed argument is read and passed on",
            seen(_READ, _GIVEN),
            expect="disable_log_requests",
        ),
    ]


@check("VLLM101", requires=("VLLM106",), paths=rollouts, unjudged=uses_unjudged(), examples=_examples)
def vllm_log_requests_renamed(uses: VllmUses) -> Iterator[Finding]:
    """verl uses disable_log_requests, which this vLLM has replaced by enable_log_requests.

    ## Why it matters
    The rollout server fails when it starts: `AttributeError: 'AsyncEngineArgs' object has no attribute
    'disable_log_requests'`, or `TypeError` for the keyword. By then the model is loaded and minutes are lost.
    The new name means the opposite, so replacing only the word turns on logging of every prompt.

    ## How to fix
    `verl-doctor fix --select VLLM101` shows an edit that works on vLLM before and after the rename, and
    `verl-doctor fix --apply` makes it. Running Ray workers keep the old code until they are restarted.
    """
    renamed = [
        use
        for use in uses.uses
        if use.breaks and use.last == LOG_REQUESTS.old and use.now == LOG_REQUESTS.new
    ]
    for group in by_cause(renamed, lambda use: use.last):
        readers = dict.fromkeys(
            use.name.rpartition(".")[0].rpartition(".")[2] for use in group if use.kind != "keyword"
        )
        takers = dict.fromkeys(
            use.name.partition("(")[0].rpartition(".")[2] for use in group if use.kind == "keyword"
        )
        does = [f"reads {name}.{LOG_REQUESTS.old}" for name in readers]
        what = "it" if does else LOG_REQUESTS.old
        does += [f"passes {what} to {name}()" for name in takers]
        yield finding(
            group,
            f"verl {' and '.join(does)}, but vLLM {uses.library.version} has "
            f"{LOG_REQUESTS.new} instead, with the opposite meaning",
            found="; ".join(dict.fromkeys(use.text or use.name for use in group)),
            wanted=(
                f"{LOG_REQUESTS.new}, inverted; {LOG_REQUESTS.since} ({LOG_REQUESTS.upstream}, as of "
                f"{LOG_REQUESTS.as_of})"
            ),
            remedy=(
                "make verl use whichever of the two names this vLLM has, then restart the Ray workers that "
                "run verl"
            ),
            fix="vllm-log-requests",
            subject=Subject("symbol", f"vllm.{LOG_REQUESTS.old}"),
        )
