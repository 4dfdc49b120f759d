"""The environment in the examples of the API1xx rules."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, LibraryUses, Unread
from verl_doctor.toolkit.collectors.installed.trees import Tree

PATHS = ("trainer", "sync rollout", "async rollout")
MODEL = "/env/verl/utils/model.py"


def seen(
    *uses: ApiUse, unread: tuple[Unread, ...] = (), damaged: tuple[Unread, ...] = ()
) -> tuple[LibraryUses]:
    """The uses found by reading verl 0.6.1 against Ray 2.60.0 and transformers 5.10.4.

    Ray has everything, and transformers has these uses.
    """
    verl = Tree(folder="/env/verl", module="verl", version="0.6.1", found_in="site-packages")
    ray = Tree(folder="/env/ray", module="ray", version="2.60.0", found_in="site-packages")
    transformers = Tree(
        folder="/env/transformers", module="transformers", version="5.10.4", found_in="site-packages"
    )
    answers = (
        ApiUses(verl=verl, library=ray, uses=(), present=35, paths=PATHS),
        ApiUses(verl=verl, library=transformers, uses=uses, present=320, paths=PATHS, unread=damaged),
    )
    return (LibraryUses(verl=verl, answers=answers, paths=PATHS, unread=unread),)
