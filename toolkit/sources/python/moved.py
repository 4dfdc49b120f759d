"""Finds where a name is defined now: every definition in a tree, found by text before anything is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from verl_doctor.toolkit.sources.python.source import SourceTree, Unreadable, read


def definitions(tree: SourceTree, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the modules that define each name at their top level: as a class, a function or a variable."""
    wanted = sorted(name for name in set(names) if name.isidentifier())
    if not wanted:
        return {}
    any_name = "|".join(map(re.escape, wanted))
    pattern = re.compile(
        rf"^(?:class|def|async def) ({any_name})\b|^({any_name})\s*(?::[^=\n]*)?=(?!=)".encode(), re.MULTILINE
    )
    words = [name.encode() for name in wanted]
    found: dict[str, list[str]] = {name: [] for name in wanted}
    for path in tree.files():
        source = read(path)
        if isinstance(source, Unreadable) or not any(word in source for word in words):
            continue
        for match in pattern.finditer(source):
            name, module = (match[1] or match[2]).decode(), tree.name_of(path)
            if module is not None and module not in found[name]:
                found[name].append(module)
    return {name: tuple(modules) for name, modules in found.items()}
