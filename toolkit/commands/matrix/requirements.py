"""The declared requirements of a release, from its metadata or the files of a checkout.

Declared pins and what the sources need can differ: `verl-doctor matrix` shows both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from verl_doctor.toolkit.collectors.installed.packages import (
    VLLM_NAMES,
    Distribution,
    read_distribution,
)
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.packages.requirements import applies, parsed
from verl_doctor.toolkit.sources.python.source import Unreadable, parse_file, read
from verl_doctor.toolkit.system import toml
from verl_doctor.toolkit.text import canonical

_LARGEST_REQUIREMENTS = 1_000_000  # bytes
# The extra of verl that installs vLLM.
EXTRA = "vllm"


@dataclass(frozen=True)
class PackageRequirement:
    """One requirement: the canonical name, the versions that satisfy it, and where it is declared.

    The name is "vllm" for every build of vLLM.
    """

    name: str
    specifier: str
    source: str

    def allows(self, version: str) -> bool | None:
        """Return whether a version satisfies it, None if the two cannot be compared."""
        try:
            return SpecifierSet(self.specifier).contains(version, prereleases=True)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.name}{self.specifier}"


@dataclass(frozen=True)
class ReleaseRequirements:
    """All requirements that a release declares. `python` is its Requires-Python, empty if undeclared."""

    requirements: tuple[PackageRequirement, ...] = ()
    python: str = ""

    def of(self, name: str) -> tuple[PackageRequirement, ...]:
        """Return the requirements on one package."""
        return tuple(requirement for requirement in self.requirements if requirement.name == name)


def requirements_of(
    distribution: Distribution, markers: Mapping[str, str], extras: Iterable[str] = ()
) -> ReleaseRequirements:
    """Read the metadata of a wheel.

    `markers` is the environment in which it would run, `extras` are the requested ones.
    """
    found = _applying(distribution.name, distribution.requires, markers, extras, "METADATA")
    return ReleaseRequirements(tuple(dict.fromkeys(found)), distribution.requires_python)


def requirements_of_tree(
    tree: Tree, markers: Mapping[str, str], installed: Distribution | None
) -> ReleaseRequirements:
    """Return a verl tree's requirements, from a checkout's files or else from its wheel's metadata."""
    if tree.project:
        return _in_project(Path(tree.project), markers)
    folder = Path(tree.folder)
    for path in sorted(folder.parent.glob(f"{folder.name}-*.dist-info")):
        if (distribution := read_distribution(str(path))) is not None:
            return requirements_of(distribution, markers, [EXTRA])
    return (
        requirements_of(installed, markers, [EXTRA])
        if installed is not None and not tree.vendored
        else ReleaseRequirements()
    )


def _applying(
    owner: str, texts: Iterable[str], markers: Mapping[str, str], extras: Iterable[str], source: str
) -> Iterator[PackageRequirement]:
    """Yield the requirements with satisfied markers, including those of the extras and of nested extras."""
    requirements = [requirement for text in texts if (requirement := parsed(text)) is not None]
    waiting, done = ["", *extras], set()
    while waiting:
        extra = waiting.pop(0)
        done.add(extra)
        for requirement in requirements:
            is_extra = "extra" in str(requirement.marker or "")
            if is_extra is not bool(extra) or not applies(requirement, {**markers, "extra": extra}):
                continue
            name = canonical(requirement.name)
            if name == owner:
                waiting += [other for other in sorted(requirement.extras) if other not in done]
            else:
                yield PackageRequirement(
                    "vllm" if name in VLLM_NAMES else name, str(requirement.specifier), source
                )


def _in_project(project: Path, markers: Mapping[str, str]) -> ReleaseRequirements:
    """Read pyproject.toml, setup.py and the requirement files at the top of a checkout."""
    found: list[PackageRequirement] = []
    python = ""
    for name, declared in (
        ("pyproject.toml", _in_pyproject(project / "pyproject.toml")),
        ("setup.py", _in_setup(project / "setup.py")),
    ):
        texts, stated = declared
        python = python or stated
        found += _applying("verl", texts, markers, [EXTRA], name)
    for file in sorted(project.glob("requirements*.txt")):
        found += _applying("verl", _lines(file), markers, [], file.name)
    return ReleaseRequirements(tuple(dict.fromkeys(found)), python)


def _lines(file: Path) -> Iterator[str]:
    source = read(file)
    text = "" if isinstance(source, Unreadable) else source[:_LARGEST_REQUIREMENTS].decode("utf-8", "replace")
    for line in text.splitlines():
        requirement = line.partition(" #")[0].strip()
        if requirement and not requirement.startswith(("#", "-")):
            yield requirement


def _in_pyproject(file: Path) -> tuple[list[str], str]:
    source = read(file)
    if isinstance(source, Unreadable):
        return [], ""
    try:
        project = toml.loads(source.decode("utf-8")).get("project", {})
    except (ValueError, RecursionError):
        return [], ""
    if not isinstance(project, dict):
        return [], ""
    return _flattened(
        project.get("dependencies"), project.get("optional-dependencies"), project.get("requires-python")
    )


def _in_setup(file: Path) -> tuple[list[str], str]:
    """Read the arguments of `setup(...)`: literals, and names of the module that stand for literals."""
    tree = parse_file(file)
    if isinstance(tree, Unreadable):
        return [], ""
    names: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _literal(value, names)
            case ast.Expr(
                value=ast.Call(func=ast.Name(id="setup") | ast.Attribute(attr="setup"), keywords=given)
            ):
                arguments = {
                    keyword.arg: _literal(keyword.value, names)
                    for keyword in given
                    if keyword.arg is not None
                }
    return _flattened(
        arguments.get("install_requires"), arguments.get("extras_require"), arguments.get("python_requires")
    )


def _literal(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """Return the value of a literal expression, with None for unknown parts."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return names.get(name)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_literal(element, names) for element in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_literal(key, names): _literal(value, names) for key, value in pairs if key is not None}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, other = _literal(left, names), _literal(right, names)
            return first + other if type(first) is type(other) is list else None
    return None


def _flattened(base: Any, extras: Any, python: Any) -> tuple[list[str], str]:
    """Return requirements in wheel metadata format: those of an extra have its name in their marker."""
    texts = [text for text in base if isinstance(text, str)] if isinstance(base, list) else []
    for extra, wanted in extras.items() if isinstance(extras, dict) else ():
        for text in wanted if isinstance(wanted, list) else ():
            if isinstance(text, str):
                plain, semicolon, marker = text.partition(";")
                condition = f"({marker.strip()}) and " if semicolon else ""
                texts.append(f'{plain.strip()} ; {condition}extra == "{extra}"')
    return texts, python if isinstance(python, str) else ""
