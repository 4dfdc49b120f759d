"""The environment in the examples of the API1xx rules."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, LibraryUses, Unread
from verl_doctor.toolkit.collectors.installed.trees import Tree

PATHS = ("trainer", "sync rollout", "async rollout")
MODEL = "/env/verl/utils/model.py"


def seen(
    *uses: ApiUse, unread: tuple[Unread, ...] = (), damaged: tuple[Unread, ...] = ()
) -> tuple[LibraryUses]:
    """The uses found by reading verl 0.6.1 against Ray 2.60.0 and transformers 5.10.4: Ray has everything, and transformers has these."""
    verl = Tree("/env/verl", "verl", "0.6.1", "site-packages")
    ray = Tree("/env/ray", "ray", "2.60.0", "site-packages")
    transformers = Tree("/env/transformers", "transformers", "5.10.4", "site-packages")
    answers = (
        ApiUses(verl, ray, (), 35, PATHS),
        ApiUses(verl, transformers, uses, 320, PATHS, damaged),
    )
    return (LibraryUses(verl, answers, PATHS, unread),)
