"""What the installed verl offers to a rehearsal, read from its sources.

That is the extension point for a platform, and known names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, read
from verl_doctor.toolkit.system.own_files import DATA

PLUGIN = DATA / "rehearsal" / "verl_doctor_rehearsal"
"""The sources of what a rehearsal adds."""

_PLATFORM = "plugin/platform/platform_base.py"
_BASE = "PlatformBase"
# Each variable that loads a platform, and the part of verl that must read it.
_EXTENSION_POINTS = {
    "VERL_USE_EXTERNAL_MODULES": "__init__.py",
    "VERL_PLATFORM": "plugin/platform/platform_manager.py",
    "VERL_ENGINE_DEVICE": "workers/engine/base.py",
}


@dataclass(frozen=True)
class Offer:
    """What verl offers. `closed` is why it has no extension point for a platform, "" if it has one.

    `lacking` are methods that its platforms must have and the rehearsal's platform lacks. `needs_queue`: its
    trainer imports `transfer_queue`.
    """

    closed: str = ""
    lacking: tuple[str, ...] = ()
    needs_queue: bool = False


def offer_of(verl: Path) -> Offer:
    """Read the offer from a tree."""
    wanted = _abstract_methods(verl / _PLATFORM)
    unread = [name for name, file in _EXTENSION_POINTS.items() if not _mentions(verl / file, name)]
    if wanted is None:
        closed = (
            "its sources have no place for a platform other than its own (verl/plugin/platform, since 0.9.0)"
        )
    else:
        closed = f"its sources do not read {' and '.join(unread)}" if unread else ""
    lacking = sorted((wanted or set()) - _defined(PLUGIN / "cpu_platform.py", "PlatformCPU"))
    return Offer(
        closed,
        () if closed else tuple(lacking),
        _mentions(verl / "trainer" / "main_ppo.py", "import transfer_queue"),
    )


class Names:
    """Whether a word occurs in the sources of verl's configuration classes and workers."""

    def __init__(self, verl: Path) -> None:
        self._folders = (verl / "workers", verl / "trainer", verl / "utils")
        self._text: bytes | None = None

    def __contains__(self, name: str) -> bool:
        if self._text is None:
            self._text = b"\n".join(
                _texts(path for folder in self._folders for path in sorted(folder.rglob("*.py")))
            )
        return name.encode() in self._text


def _texts(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        text = read(file)
        if isinstance(text, bytes):
            yield text


def _mentions(file: Path, name: str) -> bool:
    return any(name.encode() in text for text in _texts([file]))


def _methods(file: Path, name: str) -> dict[str, ast.FunctionDef | None] | None:
    """Return the members of a class by name; None if the class does not exist.

    Members that are not functions are None.
    """
    tree = parse_file(file)
    for node in () if isinstance(tree, Unreadable) else tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            members: dict[str, ast.FunctionDef | None] = {}
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    members[part.name] = part
                elif isinstance(part, ast.Assign):
                    members.update(
                        (target.id, None) for target in part.targets if isinstance(target, ast.Name)
                    )
            return members
    return None


def _abstract_methods(file: Path) -> set[str] | None:
    members = _methods(file, _BASE)
    if members is None:
        return None
    return {
        name
        for name, function in members.items()
        if function
        and any("abstractmethod" in ast.unparse(expression) for expression in function.decorator_list)
    }


def _defined(file: Path, name: str) -> set[str]:
    return set(_methods(file, name) or ())
