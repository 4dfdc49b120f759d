"""Breaks on the optional parts of verl: whether a script that switches a part on makes them errors, beside what importing says.

    python tests/bench/bench_optional.py TREES --python ENVIRONMENT/bin/python [--rows FILE] 0.8.0+0.24.0 ...

TREES and ENVIRONMENT are those of `bench_pairs.py`. This bench reads verl with a small reader of its own: every import of vLLM, and every
attribute and keyword of a name that is imported from it, with the tests around it, the statements that leave early above it, and
the handlers that would catch a miss. ENVIRONMENT then imports verl's modules, with a stand-in for what they lack, evaluates those tests where
a module decides them alone, and says what is missing. A line that such a test rules out, or that a handler or a probe of vLLM guards,
does not count. What is left belongs to a part when its module, its function or a test around it has the part's word, no
other test stands around it, and it is not about layers that only some models have.

Per pair: *start*: lines that a real step runs, with verl's defaults, where an import of the rollout fails first, and where none does;
*optional without a script*: reported at all; *with a script*: an error for a job that sets the overrides of `PARTS`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from bench_edits import EXECUTED, python_packages, shared_lines
from bench_pairs import _tree
from truth import Oracle

from verl_doctor.toolkit.collectors.api import taken
from verl_doctor.toolkit.collectors.api.job_settings import settings_of
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_job import composed
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.launch.launch import Command, Word
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine

_ROLLOUT, _MODEL, _ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.model", "actor_rollout_ref.actor"
_PROBE = re.compile(r"version|hasattr|signature|fn_args|getfullargspec|inspect|find_spec|getattr")
_ELSEWHERE = re.compile(r"(?<!not )is_(?:torch_)?npu_available|_npu\b|\bnpu|rocm|ROCM")
_MODELS = re.compile(r"moe|expert")  # layers that only some models have
_ALWAYS = re.compile(r"rank(?:\(\))? == 0|not (?:\w+\.)*is_npu_available")


class Part(NamedTuple):
    """An optional part of verl: its word in verl's sources, and what a script sets to have it."""

    word: re.Pattern[str]
    overrides: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}

    def switches(self, test: str) -> bool:
        """Whether a test holds for a job that has the part. What an object is, a script does not decide."""
        return bool(self.word.search(test)) and not test.startswith("not (isinstance(")


PARTS = {
    "LoRA": Part(re.compile(r"(?<!q_)(?<!kv_)lora|load_adapter", re.IGNORECASE), (f"{_MODEL}.lora_rank=32", f"{_ROLLOUT}.load_format=safetensors")),
    "Megatron": Part(re.compile("megatron|mcore", re.IGNORECASE), ("--config-name=ppo_megatron_trainer",)),
    "FP8": Part(re.compile("fp8", re.IGNORECASE), (f"+{_ROLLOUT}.quantization=fp8",)),
    "replay": Part(re.compile("rout\\w*_replay", re.IGNORECASE), (f"++{_ROLLOUT}.enable_rollout_routing_replay=True",)),
    "tensor parallelism": Part(re.compile("tensor_model_parallel_size|tp_size|infer_tp"), (f"{_ROLLOUT}.tensor_model_parallel_size=4",)),
    "checkpoint engine": Part(re.compile("checkpoint_engine"), (f"++{_ROLLOUT}.checkpoint_engine.backend=mooncake",)),
    "an exported variable": Part(re.compile("VERL_USE_GPT_OSS|get_encoding"), (), {"VERL_USE_GPT_OSS": "1"}),
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A use of vLLM in verl: what is used, and the tests that decide whether it is reached, with the side taken."""

    file: Path
    module: str
    line: int
    kind: str
    owner: str
    name: str
    unit: str = ""
    tests: tuple[tuple[str, bool], ...] = ()
    guarded: bool = False
    mentioned: tuple[tuple[tuple[str, bool], ...], ...] = ()
    """The tests around each mention of its function in its module."""

    def is_dead(self, decided: Mapping[tuple[str, str], bool | None]) -> bool:
        """Whether a test that the module decides alone rules it out, around it or around each mention of its function."""

        def out(tests: Iterable[tuple[str, bool]]) -> bool:
            return any(decided.get((self.module, text), side) not in (None, side) for text, side in tests)

        return out(self.tests) or bool(self.mentioned and all(map(out, self.mentioned)))

    @property
    def words(self) -> str:
        """What names a part: the module, the function, the name itself where it is imported, and the tests."""
        return " ".join([self.module, self.unit, *(text for text, _ in self.tests)])


@dataclass
class _Place:
    """Where the reader of this bench is."""

    names: dict[str, str]
    values: dict[str, ast.expr] = field(default_factory=dict)
    unit: str = ""
    tests: tuple[tuple[str, bool], ...] = ()
    guarded: bool = False

    def under(self, test: ast.expr, *, holds: bool) -> _Place:
        if holds and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            place = self
            for part in test.values:
                place = place.under(part, holds=True)
            return place
        known = _Known(self.values).visit(ast.parse(ast.unparse(test), mode="eval").body)
        return replace(self, tests=(*self.tests, (ast.unparse(known), holds)))


class _Known(ast.NodeTransformer):
    """Puts what a name was assigned in its place: `version.parse(vllm.__version__)` for `vllm_version`."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


_HELD = {"_lora_model_cls": "LoRAModel"}
"""Attributes of vLLM's classes that hold a class which verl imports as well; verl's replacement of their methods uses them."""

_CATCHES = {"ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "Exception", "BaseException"}


class Reader:
    """Finds the uses of vLLM in one file."""

    def __init__(self, file: Path, module: str) -> None:
        self.file, self.module = file, module
        self.found: list[Site] = []
        self.mentions: dict[str, list[tuple[tuple[str, bool], ...]]] = {}

    def read(self) -> list[Site]:
        """The uses. Those of a function that is only mentioned below tests stand below these tests."""
        tree = ast.parse(self.file.read_bytes())
        self._block(tree.body, _Place({}))
        own = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        return [
            replace(site, mentioned=tuple(self.mentions.get(name, ())))
            if (name := site.unit.partition(".")[0]) in own
            else site
            for site in self.found
        ]

    def _add(self, node: ast.AST, kind: str, owner: str, name: str, place: _Place) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Site(self.file, self.module, line, kind, owner, name, place.unit, place.tests, place.guarded))  # fmt: skip

    def _block(self, body: Iterable[ast.stmt], place: _Place) -> None:
        later: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, _Place]] = []
        for node in body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node, place)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    # Its body runs later, when all names of the module are bound.
                    later.append(
                        (node, replace(place, unit=f"{place.unit}.{name}".strip("."), guarded=False))
                    )
                case ast.ClassDef(name=name):
                    for base in node.bases:
                        self._expressions(base, place)
                    self._block(node.body, replace(place, unit=f"{place.unit}.{name}".strip(".")))
                case ast.If(test=test):
                    self._expressions(test, place)
                    self._block(node.body, place.under(test, holds=True))
                    self._block(node.orelse, place.under(test, holds=False))
                    if isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Continue)) and not node.orelse:
                        place = place.under(test, holds=False)
                case ast.Try():
                    catches = any(_catches(handler) for handler in node.handlers)
                    self._block(node.body, replace(place, guarded=place.guarded or catches))
                    for handler in node.handlers:
                        self._block(handler.body, replace(place, guarded=True))
                    self._block([*node.orelse, *node.finalbody], place)
                case ast.For() | ast.AsyncFor() | ast.While() | ast.With() | ast.AsyncWith():
                    for child in ast.iter_child_nodes(node):
                        if isinstance(child, (ast.expr, ast.withitem)):
                            self._expressions(child, place)
                    self._block([*node.body, *getattr(node, "orelse", [])], place)
                case ast.Assign(targets=targets):
                    for target in targets:
                        for part in ast.walk(target):
                            if isinstance(part, ast.Name):
                                place.names.pop(part.id, None)
                    self._expressions(node.value, place)
                    match node:
                        case ast.Assign(targets=[ast.Name(id=name)], value=value):
                            place.values[name] = value
                case ast.AnnAssign(value=ast.expr() as value):
                    self._expressions(value, place)
                case ast.AnnAssign():
                    pass
                case _:
                    self._expressions(node, place)
        for function, inner in later:
            parameters = {
                argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)
            }
            names = {name: origin for name, origin in place.names.items() if name not in parameters}
            self._block(function.body, replace(inner, names=names, values={}))

    def _import(self, node: ast.Import | ast.ImportFrom, place: _Place) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                if f"{alias.name}.".startswith("vllm."):
                    self._add(alias, "import", alias.name, "", place)
                    place.names[alias.asname or "vllm"] = alias.name if alias.asname else "vllm"
            elif not node.level and f"{node.module}.".startswith("vllm.") and alias.name != "*":
                self._add(alias, "import", node.module or "", alias.name, place)
                place.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            else:
                place.names.pop(alias.asname or alias.name, None)

    def _expressions(self, node: ast.AST, place: _Place) -> None:
        match node:
            case ast.Name(id=name) if name not in place.unit.split("."):
                self.mentions.setdefault(name, []).append(place.tests)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._expressions(test, place)
                self._expressions(body, place.under(test, holds=True))
                self._expressions(orelse, place.under(test, holds=False))
                return
            case ast.BoolOp(op=ast.And(), values=values):
                for value in values:
                    self._expressions(value, place)
                    place = place.under(value, holds=True)
                return
            case ast.Attribute(ctx=ast.Load()) if owner := self._dotted(node.value, place):
                self._add(node, "attribute", owner, node.attr, place)
            case ast.Call(func=function) if owner := self._dotted(function, place):
                for word in node.keywords:
                    if word.arg:
                        self._add(word, "keyword", owner, word.arg, place)
        for child in ast.iter_child_nodes(node):
            self._expressions(child, place)

    def _dotted(self, node: ast.expr, place: _Place) -> str:
        match node:
            case ast.Name(id=name):
                return place.names.get(name, "")
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in _HELD:
                return place.names.get(_HELD[name], "")
            case ast.Attribute(value=value, attr=name):
                owner = self._dotted(value, place)
                return f"{owner}.{name}" if owner else ""
        return ""


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind) if kind is not None else "Exception" for kind in kinds}
    return bool(names & _CATCHES or any(name not in dir(__builtins__) for name in names)) and not isinstance(
        handler.body[-1], ast.Raise
    )


@dataclass
class Tally:
    """What was found of what is missing."""

    found: Counter[str] = field(default_factory=Counter)
    every: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, *, found: bool) -> None:
        self.every[what] += 1
        self.found[what] += found

    def add_all(self, other: Tally) -> None:
        self.found.update(other.found)
        self.every.update(other.every)

    def lines(self) -> Iterator[str]:
        for what, count in sorted(self.every.items()):
            yield f"{what}: {self.found[what]} of {count}, {100 * self.found[what] / count:.0f} %"


def job(verl: Tree, part: Part | None) -> tuple[Configuration | Absent, JobVariables]:
    """The configuration and the variables of a job that has a part, as far as this verl has the keys."""
    variables = JobVariables(dict(part.variables) if part is not None else {})
    if part is None:
        return Absent("no script"), variables
    overrides = (f"{_ROLLOUT}.name=vllm", f"{_ROLLOUT}.mode=async", *part.overrides)
    configuration = _composed(verl, overrides)
    if configuration is None or configuration.refused:
        accepted: tuple[str, ...] = ()
        for override in overrides:
            one = _composed(verl, (*accepted, override))
            if one is not None and not one.refused:
                accepted = (*accepted, override)
        configuration = _composed(verl, accepted)
    return (Absent("it cannot be composed") if configuration is None else configuration), variables


def _composed(verl: Tree, overrides: Iterable[str]) -> Configuration | None:
    words = tuple(Word(text, "run.sh", 1, text) for text in overrides)
    found = composed(
        Command("verl.trainer.main_ppo", words, "run.sh", 1), Path(verl.folder), Machine(), verl.version
    )
    return found if isinstance(found, Configuration) else None


def reported(verl: Tree, vllm: Tree, part: Part | None) -> tuple[dict[tuple[str, int], list[ApiUse]], bool]:
    """What the doctor reports as breaking for such a job, by file and line, and whether it refuses the pair as such."""
    configuration, variables = job(verl, part)
    settings = settings_of(verl, configuration, variables, Machine())
    found = read_trees(VllmUses, verl, vllm, "3.11.7", Surroundings(settings=settings))
    if not isinstance(found, VllmUses):
        return {}, False
    found = taken.of_vllm(found, taken.paths_taken(configuration))
    places: dict[tuple[str, int], list[ApiUse]] = {}
    for use in found.uses:
        if use.breaks:
            places.setdefault((use.path, use.line), []).append(use)
    return places, any(use.kind == "refusal" and _is_error(use) for use in found.uses)


def _is_error(use: ApiUse) -> bool:
    return use.breaks and bool(use.paths) and not use.when


def answers(site: Site, places: dict[tuple[str, int], list[ApiUse]]) -> list[ApiUse]:
    """What is reported at a use: of the same name, or of the module or class that it belongs to."""
    names = {site.name, *site.owner.split(".")[-1:]}
    return [use for use in places.get((str(site.file), site.line), ()) if use.last in names or use.kind in {"call", "required", "positional"}]  # fmt: skip


def measured(
    verl: Tree, vllm: Tree, oracle: Oracle, executed: Mapping[str, set[int]]
) -> tuple[Tally, list[str]]:
    """All of one pair."""
    own, rows = Path(verl.folder), list[str]()
    oracle.begin(own, Path(vllm.folder), vllm.version)
    sites: list[Site] = []
    for file in sorted(own.rglob("*.py")):
        if b"vllm" in file.read_bytes() and not re.search(r"/vllm_v_\d", str(file)):
            name = ".".join(file.relative_to(own.parent).with_suffix("").parts).removesuffix(".__init__")
            sites += Reader(file, name).read()
    missing = list(_missing(sites, oracle))
    imports = {(str(site.file), site.line) for site in sites if site.kind == "import"}
    tests = {
        (site.module, text) for site in missing for part in (site.tests, *site.mentioned) for text, _ in part
    }
    decided = oracle.conditions(tests, imports)
    plain, refused = reported(verl, vllm, None)
    tally = Tally()
    if refused:
        return tally, ["verl refuses this vLLM"]
    first = any(
        use.kind == "import" and use.phase == "import" and _is_error(use)
        for found in plain.values()
        for use in found
    )
    with_part: dict[str, dict[tuple[str, int], list[ApiUse]]] = {}
    for site in missing:
        if site.is_dead(decided):
            continue
        left = [
            text if side else f"not ({text})"
            for text, side in site.tests
            if decided.get((site.module, text)) is None
        ]
        # A version that is handed on as a parameter is not evaluated: such a line may be for other releases.
        unsure = [
            any(_PROBE.search(text) and decided.get((site.module, text)) is None for text, _ in around)
            for around in site.mentioned
        ]
        if unsure and all(unsure):
            continue
        if site.guarded or any(map(_PROBE.search, left)) or _ELSEWHERE.search(site.words):
            continue
        left = [text for text in left if not _ALWAYS.search(text)]
        here = answers(site, plain)
        line = f"{site.module}:{site.line} {site.unit} {site.kind} {site.owner}.{site.name} [{' and '.join(left)}]"
        if site.line in executed.get(f"verl/{site.file.relative_to(own)}", ()) and site.unit:
            kind = "start, behind an import that fails" if first else "start"
            tally.add(kind, found=any(map(_is_error, here)))
            rows.append(f"{'found' if any(map(_is_error, here)) else 'missed'}: {kind}: {line}")
            continue
        if not site.unit and not left:
            continue  # `bench_pairs.py` has what every import of a module runs
        tally.add("optional without a script", found=bool(here))
        if not here:
            rows.append(f"missed: optional without a script: {line}")
        for name, part in PARTS.items():
            if (
                part.word.search(site.words)
                and all(map(part.switches, left))
                and not _MODELS.search(site.unit)
            ):
                if name not in with_part:
                    with_part[name] = reported(verl, vllm, part)[0]
                there = answers(site, with_part[name])
                tally.add(f"with a script: {name}", found=any(map(_is_error, there)))
                why = f": {there[0].guard or there[0].when or 'not on a path'}" if there else ""
                rows.append(f"{'found' if any(map(_is_error, there)) else 'missed'}: {name}: {line}{why}")
    return tally, rows


def _missing(sites: list[Site], oracle: Oracle) -> Iterator[Site]:
    """The uses that really fail. What belongs to something that is missing as a whole counts once, at its import."""
    imports = {(site.owner, site.name) for site in sites if site.kind == "import"}
    names = oracle.names(sorted(imports))
    gone = {f"{module}.{name}".rstrip(".") for (module, name), real in names.items() if real == "missing"}
    members = sorted({(site.kind, site.owner, site.name) for site in sites if site.kind != "import"})
    real = oracle.members(members)
    for site in sites:
        if site.kind == "import":
            if names[site.owner, site.name] == "missing":
                yield site
        elif real.get((site.kind, site.owner, site.name)) == "missing" and not any(
            f"{site.owner}.".startswith(f"{name}.") for name in gone
        ):
            yield site


def main() -> int:
    parser = argparse.ArgumentParser(description="breaks on the optional parts of verl")
    parser.add_argument("trees", type=Path)
    parser.add_argument("pairs", nargs="+", help="VERL+VLLM, for instance 0.9.1+0.24.0")
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--rows", type=Path, help="where each line is written, with what was reported of it")
    options = parser.parse_args()
    python, total = options.python.absolute(), Tally()
    with tempfile.TemporaryDirectory() as home:
        oracle = Oracle(python, Path(home))
        for text in options.pairs:
            release, _, other = text.partition("+")
            verl, vllm = _tree(options.trees, "verl", release), _tree(options.trees, "vllm", other)
            executed: dict[str, set[int]] = {}
            for line in EXECUTED.read_text("utf-8").splitlines():
                file, _, numbers = line.partition(":")
                there, here = python_packages(python) / file, Path(verl.folder).parent / file
                if here.exists():
                    executed[file] = shared_lines(there, here, set(map(int, numbers.split(","))))
            tally, rows = measured(verl, vllm, oracle, executed)
            total.add_all(tally)
            print(f"{text}: {'; '.join(tally.lines()) or 'nothing'}", flush=True)
            if options.rows:
                with options.rows.open("a", encoding="utf-8") as out:
                    out.writelines(f"{text} {row}\n" for row in rows)
        oracle.close()
    print(*total.lines(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
