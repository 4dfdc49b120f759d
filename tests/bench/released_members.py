"""Writes `toolkit/data/members_by_release.json`: which releases of a package have a member of a class, or a parameter of a function.

    python tests/bench/released_members.py ARCHIVES

The empty member stands for the class or the function itself, wherever in the package it is defined. `ARCHIVES` is a folder with several releases of each package: wheels (`pip download --no-deps`), or its source, packed and named like them
(`git archive -o PACKAGE-VERSION.zip TAG FOLDER`). A table names a class for its members, and a function, a method, or a class
with brackets behind it for its parameters. What all releases have that have the class or the function is left out, as is what came back.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))

from released_names import bounds

FILE = Path(__file__).parent.parent.parent / "toolkit" / "data" / "members_by_release.json"
PACKAGES = (
    "accelerate", "deepspeed", "flash_attn", "huggingface_hub", "peft", "sglang", "transformers", "trl", "verl",
)  # fmt: skip
# Files whose names are private to a package; the configurations of models also have what their config.json holds.
_LEFT_OUT = re.compile(
    r"/(?:tests?|testing|benchmarks?|examples|commands|cli|csrc|kernels|triton_ops|op_builder|inference/v2|compile|layers|managers|mem_cache|"
    r"multimodal|model_executor|v1|entrypoints/openai|srt/models|pipelines|sagemaker|kernel)/|/models/(?!(?:llama|qwen2|qwen2_vl|qwen2_5_vl|qwen3|qwen3_vl|mistral|gemma3)/modeling_\w+\.py$)|/(?:_(?!_)|test_)\w*\.py$|/conversion_|/convert_|"
    r"/tuners/(?!.*/(?:config|model)\.py)|/modeling_(?:flax|tf)_|_(?:tf|flax)\.py$"
)
# The files of large packages that others call.
_ONLY = {
    "deepspeed": re.compile(r"^deepspeed/(?:__init__|runtime/(?:engine|config\w*|lr_schedules|zero/\w*config\w*|zero/partition_parameters)|utils/\w+|comm/comm)\.py$"),
    "sglang": re.compile(r"^sglang/(?:srt/(?:server_args|entrypoints/engine|sampling/sampling_params|utils/?\w*)|lang/api)\.py$"),
    "verl": re.compile(r"^verl/(?:protocol|base_config|workers/(?:config|reward_manager)/\w+|trainer/config/\w+|utils/(?:tracking|tokenizer|dataset/\w+|reward_score/\w+))\.py$"),
    "vllm": re.compile(r"^vllm/(?:sampling_params|engine/arg_utils|entrypoints/llm|lora/request|config/?\w*|inputs/data|outputs)\.py$"),
}  # fmt: skip
_LEAST = 3  # releases that must have a class or a function
# Classes of other packages that are extended; what a class loses is hardly moved there.
_STABLE = frozenset({"Trainer", "Seq2SeqTrainer", "TrainingArguments", "Module"})


@dataclass
class Class:
    """A class in one release, or in several modules of it."""

    bases: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    """What its methods store in other objects, of whatever class: some may be its own under another name."""
    is_open: bool = False


@dataclass
class Release:
    """The classes and the calls of one release; None stands for any parameter."""

    listed: set[str] = field(default_factory=set)
    """Classes that only a list of placeholders names, as transformers had them before 5.0."""
    classes: dict[str, Class] = field(default_factory=lambda: defaultdict(Class))
    calls: dict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))

    def members(self, name: str, seen: frozenset[str] = frozenset()) -> tuple[set[str], bool]:
        """Return the members of a class with those of its bases, and whether all of these are known."""
        found = self.classes[name]
        members, is_whole = set(found.members), not found.is_open
        for base in found.bases - seen - {"object", "ABC", "Enum", "str", "Generic", "Protocol"}:
            if base not in self.classes:
                is_whole &= base in _STABLE
                continue
            more, is_known = self.members(base, seen | {name})
            members |= more
            is_whole &= is_known
        return members, is_whole


def read(files: Iterable[tuple[str, str]]) -> Release:
    """Return what the files of a release define."""
    release = Release()
    for path, text in files:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            continue
        for node in body:
            if isinstance(node, ast.ClassDef):
                if "/dummy_" in path:
                    release.listed.add(node.name)
                _add_class(release, node)
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                release.calls[node.name] |= _parameters(node)
    return release


def _add_class(release: Release, node: ast.ClassDef) -> None:
    if node.name.startswith("_"):
        return
    found = release.classes[node.name]
    found.bases |= {
        base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else "?"
        for base in node.bases
    }
    for part in node.body:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.members.add(part.name)
            found.is_open |= part.name in {"__getattr__", "__getattribute__"}
            if part.name == "__init__":
                release.calls[node.name] |= _parameters(part)
            elif not part.name.startswith("_"):
                release.calls[f"{node.name}.{part.name}"] |= _parameters(part)
            own, other = _stored(part)
            found.members |= own
            found.others |= other
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            found.members.add(part.target.id)
        elif isinstance(part, ast.Assign):
            found.members |= {target.id for target in part.targets if isinstance(target, ast.Name)}


def _stored(method: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[set[str], set[str]]:
    """Return the attributes that a method stores in its object or its class, and those that it stores in other objects."""
    is_static = any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in method.decorator_list
    )
    first = (*method.args.posonlyargs, *method.args.args)[:1]
    owner = first[0].arg if first and not is_static else ""
    own: set[str] = set()
    other: set[str] = set()
    for child in ast.walk(method):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            is_own = isinstance(child.value, ast.Name) and child.value.id == owner
            (own if is_own else other).add(child.attr)
    return own, other


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str | None]:
    arguments = node.args
    names: set[str | None] = {
        argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    }
    # A decorator that renames a parameter names the old one, which the function still takes.
    names |= {
        child.value
        for decorator in node.decorator_list
        for child in ast.walk(decorator)
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value.isidentifier()
    }
    return names | {None} if arguments.kwarg else names


def table_of(releases: Mapping[Version, Release], package: str) -> Mapping[str, Mapping[str, str]]:
    """Return the bounds of each member of a class, and of each parameter of a call, that some releases lack."""
    table: dict[str, dict[str, str]] = defaultdict(dict)
    ordered = sorted(releases)
    for name in sorted(
        {name for release in releases.values() for name in (*release.classes, *release.calls)}
    ):
        if "." in name or name.startswith("_"):
            continue
        here = [name in releases[version].classes or name in releases[version].calls for version in ordered]
        limits = bounds(ordered, here, package)
        if any(name in release.listed for release in releases.values()):
            limits = limits.partition(",<")[0] if limits.startswith(">=") else ""
        if limits:
            table[name][""] = limits
    for name in sorted({name for release in releases.values() for name in release.classes}):
        having = [version for version in ordered if name in releases[version].classes]
        found = [releases[version].members(name) for version in having]
        for member in sorted(set().union(*(members for members, _ in found))):
            if member.startswith("__") or not any(
                member in releases[version].classes[name].members for version in having
            ):
                continue  # it is the base's
            if any(
                member in releases[version].classes[name].others and member not in members
                for version, (members, _) in zip(having, found, strict=True)
            ):
                continue  # a release that may have it too
            limits = bounds(having, [member in members for members, _ in found], package)
            if (
                limits
                and len(having) >= _LEAST
                and (
                    (limits.startswith(">=") and "," not in limits) or all(is_whole for _, is_whole in found)
                )
            ):
                table[name][member] = limits
    for name in sorted({name for release in releases.values() for name in release.calls}):
        having = [version for version in ordered if name in releases[version].calls]
        taken = [releases[version].calls[name] for version in having]
        for parameter in sorted({parameter for names in taken for parameter in names if parameter}):
            limits = bounds(having, [parameter in names or None in names for names in taken], package)
            if limits and len(having) >= _LEAST and table.get(name, {}).get(parameter) != limits:
                table[f"{name}()"][parameter] = limits
    return table


def archived(path: Path, package: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a package in an archive, by their path from its folder on."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            at = f"/{name}".find(f"/{package}/")
            is_called = package not in _ONLY or _ONLY[package].match(name[max(at, 0) :])
            if at >= 0 and name.endswith(".py") and is_called and not _LEFT_OUT.search(f"/{name[at:]}"):
                yield name[at:], archive.read(name).decode("utf-8", "replace")


def main(archives: Path, packages: Sequence[str] = PACKAGES) -> None:
    tables: dict[str, Mapping[str, Mapping[str, str]]] = {}
    for package in packages:
        releases = {
            Version(path.name.split("-")[1].removesuffix(".zip")): read(archived(path, package))
            for path in archives.glob(f"{package}-*")
        }
        tables[package] = table_of(releases, package)
        if not tables[package]:
            raise SystemExit(f"{package}: nothing differs between {len(releases)} releases in {archives}")
        print(package, len(releases), sum(map(len, tables[package].values())), file=sys.stderr)
    blocks = (
        f"{json.dumps(package)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table.items())
        + "\n}"
        for package, table in tables.items()
        if table
    )
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
