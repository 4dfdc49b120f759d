"""API103: verl calls Ray, transformers, tensordict or SGLang with arguments that it does not accept."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_examples import seen
from verl_doctor.checks.api._api_messages import mismatched_calls
from verl_doctor.checks.api._libraries_unjudged import libraries_unjudged
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses, every_path
from verl_doctor.toolkit.rule import Example, Finding, check

_REFUSED = ApiUse(
    path="/env/verl/single_controller/ray/base.py",
    line=120,
    kind="keyword",
    name="ray.util.placement_group.placement_group(strat)",
    resolution="missing",
    phase="start",
    paths=("trainer",),
    now="strategy",
    read_from="/env/ray/util/placement_group.py",
)


def _examples() -> list[Example]:
    return [
        Example("every call fits", seen()),
        Example(
            "a keyword is not accepted",
            seen(_REFUSED),
            expect="placement_group() is called with the keyword strat, which it does not accept",
        ),
    ]


@check("API103", paths=every_path, unjudged=libraries_unjudged, examples=_examples)
def library_call_mismatch(uses: LibraryUses) -> Iterator[Finding]:
    """verl calls Ray, transformers, tensordict or SGLang with arguments that it does not accept.

    ## Why it matters

    The call raises TypeError when it is reached. If only the order of the parameters has changed, nothing is
    raised and the values end up in the wrong parameters.

    ## How to fix

    Change the call to the parameters that the finding shows, or install a release of the library for which
    this verl was written: `verl-doctor check --tree transformers=DIR` (or `ray`, `tensordict`, `sglang`)
    checks a release before you install it.
    """
    for library in uses.answers:
        yield from mismatched_calls(library)
