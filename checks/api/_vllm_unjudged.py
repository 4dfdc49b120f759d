"""Shared by the VLLM1xx rules: what reading both trees leaves open."""

from __future__ import annotations

from collections.abc import Callable

from verl_doctor.checks.api._api_breaks import unresolved
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.rule import Unjudged


def uses_unjudged(*kinds: str) -> Callable[[VllmUses], tuple[Unjudged, ...]]:
    """What a rule about these kinds of uses cannot judge."""

    def unjudged(uses: VllmUses) -> tuple[Unjudged, ...]:
        return unresolved(uses, *kinds)

    return unjudged
