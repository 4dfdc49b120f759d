"""Writes `toolkit/data/names_by_release.json`: which releases of a package have the names that other packages import from it.

    python tests/bench/released_names.py WHEELS TREES

`WHEELS` is a folder with wheels of the packages (`pip download --no-deps`), or source archives named like them (PACKAGE-VERSION.zip),
several releases of each; `TREES` holds the source of the packages that import from them, each in a folder of its name. A name that all
releases have, or none, is left out, as is one that came back after it had been removed.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

FILE = Path(__file__).parent.parent.parent / "toolkit" / "data" / "names_by_release.json"
PACKAGES = (
    "accelerate", "deepspeed", "huggingface_hub", "megatron", "peft", "sglang", "tensordict", "transformers", "trl", "vllm", "vllm_ascend",
)  # fmt: skip
EVERY_RELEASE = frozenset({"vllm", "sglang", "vllm_ascend"})
"""Packages whose names change between patch releases."""
_FROM = re.compile(
    rf"^[ \t]*from[ \t]+((?:{'|'.join(PACKAGES)})(?:\.\w+)*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n(#\\]+))",
    re.MULTILINE,
)
# transformers 5 keeps the old names of these as aliases, which it makes when it is imported.
_ALIASED = re.compile(r"transformers\b.*(?:_fast|Fast|\.tokenization_utils)(?:\.\w*)?")
_ALL = re.compile(r"__all__\s*=\s*\[(.*?)\]", re.DOTALL)


def imported(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of other packages that a source tree imports; an empty name stands for the module."""
    for file in tree.rglob("*.py"):
        for module, several, single in _FROM.findall(file.read_text("utf-8", "replace")):
            if module.partition(".")[0] == tree.name:
                continue
            yield module, ""
            for part in re.sub(r"#.*", "", several or single).split(","):
                if re.fullmatch(r"\w+", name := part.strip().partition(" as ")[0]):
                    yield module, name


def sources(wheel: Path, package: str) -> Mapping[str, str]:
    """The Python files of a package in a wheel, by their path from its folder on."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [path for path in archive.namelist() if path.endswith(".py") and f"/{package}/" in f"/{path}"]
        return {
            path[f"/{path}".index(f"/{package}/") :]: archive.read(path).decode("utf-8", "replace")
            for path in paths
        }


def defined(text: str) -> set[str]:
    """The names that a module defines, imports, or lists as those that it imports when they are used."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return set()
    names: set[str] = set()
    while body:
        node = body.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For)):
            for part in ("body", "orelse", "finalbody"):
                body += getattr(node, part, [])
            body += [line for handler in getattr(node, "handlers", []) for line in handler.body]
        else:
            names |= {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
            values = (child.value for child in ast.walk(node) if isinstance(child, ast.Constant))
            names |= {value for value in values if isinstance(value, str) and value.isidentifier()}
    return names


def present(files: Mapping[str, str], module: str, names: Sequence[str]) -> Iterator[bool]:
    """Yield for each name whether a release has it in a module."""
    path = module.replace(".", "/")
    text = files.get(f"{path}.py") or files.get(f"{path}/__init__.py")
    exists = text is not None or any(file.startswith(f"{path}/") for file in files)
    known = defined(text or "")
    if "." not in module:
        known |= {
            name
            for other in files.values()
            for found in _ALL.findall(other)
            for name in re.findall(r"\"(\w+)\"", found)
        }
    for name in names:
        yield exists and (
            not name or name in known or f"{path}/{name}.py" in files or f"{path}/{name}/__init__.py" in files
        )


def bounds(releases: Sequence[Version], has: Sequence[bool], package: str) -> str:
    """The releases that have a name, as pip takes them; "" if all or none do, or it came back."""
    first, last = (
        has.index(True) if any(has) else 0,
        len(has) - 1 - list(reversed(has)).index(True) if any(has) else 0,
    )
    if all(has) or not all(has[first : last + 1]) or not any(has):
        return ""
    exact = package in EVERY_RELEASE
    parts = []
    if first:
        parts.append(f">={releases[first] if exact else _minor(releases[first])}")
    if last + 1 < len(has):
        parts.append(f"<={releases[last]}" if exact else f"<{_minor(releases[last + 1])}")
    return ",".join(parts)


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def main(wheels: Path, trees: Path) -> None:
    wanted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for tree in trees.iterdir():
        for module, name in imported(tree):
            wanted[module.partition(".")[0]][module].add(name)
    table: dict[str, dict[str, dict[str, str]]] = {}
    for package in PACKAGES:
        files = {
            Version(path.name.split("-")[1].removesuffix(".zip")): path
            for path in wheels.glob(f"{package}-*")
        }
        releases = sorted(files)
        has: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for release in releases:
            found = sources(files[release], package)
            for module, names in wanted[package].items():
                ordered = sorted(names | {""})
                for name, is_there in zip(ordered, present(found, module, ordered), strict=True):
                    has[module, name].append(is_there)
        for (module, name), row in sorted(has.items()):
            limits = bounds(releases, row, package)
            if limits and (not name or limits != table.get(package, {}).get(module, {}).get("")):
                table.setdefault(package, {}).setdefault(module, {})[name] = limits
    blocks = (
        f"{json.dumps(package)}: {{\n"
        + ",\n".join(f"{json.dumps(module)}: {json.dumps(names)}" for module, names in modules.items())
        + "\n}"
        for package, modules in table.items()
    )
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
