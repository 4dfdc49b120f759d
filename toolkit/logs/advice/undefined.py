"""Advice on names and attributes that the installed release of a package does not define."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.calls import served_package
from verl_doctor.toolkit.logs.advice.installed import dated, has_release, is_within, release_of
from verl_doctor.toolkit.logs.advice.members import NO_MEMBER
from verl_doctor.toolkit.logs.advice.places import Place, installing, is_named_by, shown_at
from verl_doctor.toolkit.logs.advice.settings import ROLLOUT
from verl_doctor.toolkit.logs.advice.subclasses import of_subclass, of_wrapper
from verl_doctor.toolkit.logs.blame import REMOTE_CODE, is_of_the_job, package_of
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import bounds, distribution, owner_of
from verl_doctor.toolkit.logs.python_errors import Frame, Raised
from verl_doctor.toolkit.logs.releases import bounds_of, bounds_of_part, members_of, owners_of

_NO_NAME = re.compile(
    r"cannot import name '([^']+)' from (partially initialized module )?'([\w.]+)'(?:.*\((/[^)]+)\))?"
)
_NO_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_LOOKED_UP = re.compile(r"Could not find (\w+) neither in <module 'transformers")
_MODEL_FILE = re.compile(r"/models/(\w+)/modeling_\w+\.py$")
_FAMILY = re.compile(r"[a-z]{3,}")
_MODEL_CONFIG = re.compile(r"(\w+?)(?:Vision|Text|Audio|Thinker|Talker|Model)*Config")
_NAMESPACE = "(unknown location)"
# The message of an AttributeError of an Enum, and a call with the entries of a dictionary.
_BARE = re.compile(r"(\w+)(?:\. Did you mean: '\w+'\?)?$")
# Names of the standard library that packages import, and the Python that brought them.
_PYTHON_OF = {
    **dict.fromkeys(
        (f"typing.{name}" for name in ("ParamSpec", "TypeAlias", "Concatenate", "TypeGuard")), "3.10"
    ),
    **dict.fromkeys(
        (
            f"typing.{name}"
            for name in (
                "Self",
                "Unpack",
                "TypeVarTuple",
                "Required",
                "NotRequired",
                "LiteralString",
                "Never",
                "assert_never",
                "dataclass_transform",
            )
        ),
        "3.11",
    ),
    **dict.fromkeys(
        ("enum.StrEnum", "datetime.UTC", "asyncio.timeout", "asyncio.TaskGroup", "contextlib.chdir"), "3.11"
    ),
    **dict.fromkeys(("typing.override", "itertools.batched", "typing.TypeAliasType"), "3.12"),
    **dict.fromkeys(
        ("itertools.pairwise", "types.NoneType", "types.UnionType", "types.EllipsisType"), "3.10"
    ),
}
# Methods of strings that no tokenizer, model or tensor has.
_OF_TEXT = frozenset(
    {
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "splitlines",
        "startswith",
        "endswith",
        "rpartition",
        "casefold",
    }
)
_OF_ENGINES = frozenset({"slime", "miles"})  # trainers that make their arguments from those of an engine
_MODEL_TYPE = re.compile(r"model type [`'\"](\w+)[`'\"]? but Transformers does not")
_BARE_TYPE = re.compile(r"['\"]([a-z]\w*)['\"]")
_PYTHON = re.compile(r"/python(3\.\d+)/")
# Folders and archives of an interpreter's own modules.
_OF_PYTHON = re.compile(r"/python3[\d.t]*/|/pypy[\d.]*/|/lib-python/|/lib_pypy/|\.zip/")
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
_NEVER_SET = re.compile(
    r"local variable '(\w+)' referenced before assignment"
    r"|cannot access local variable '(\w+)' where it is not associated"
)
# What selects the branch that sets a variable in verl's trainers.
_CHOSEN_BY = {
    "rollout": f"{ROLLOUT}.name",
    "sharding_manager": f"{ROLLOUT}.name",
    "optimizer": "actor.optim.optimizer",
    "lr_scheduler": "actor.optim.lr_scheduler_type (or warmup_style)",
    "reward_manager_cls": "reward_model.reward_manager",
    "sampler": "data.sampler",
}
_ENCODED = re.compile(
    r"'(?:tokenizers\.Encoding|BatchEncoding)' object has no attribute"
    r"|unsupported operand .*'BatchEncoding'|not '?BatchEncoding"
)


def name(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a name that a module does not define."""
    if unknown := _LOOKED_UP.search(raised.message):
        # Classes for video of models that had none before came in later releases than the models.
        limits = _bounds_of_class(unknown[1], "transformers") if "Video" not in unknown[1] else ""
        install = (
            f"pip install 'transformers{limits}'"
            if limits and not has_release("transformers", limits, lines)
            else (
                "install another release (the transformers_version in the model's config.json, or the one "
                "before an upgrade), not a development version"
            )
        )
        return (
            f"the installed {dated('transformers', lines)} has no {unknown[1]}, which a configuration file "
            f"of the model or of the processor names: {install}"
        )
    if (found := _NO_NAME.search(raised.message)) is None:
        return ""
    name, partly, module, path = found.groups()
    top = module.partition(".")[0]
    if partly:
        return (
            f"{module} imports itself through other modules, or a file called {top}.py hides the package: "
            f"look at {path or 'the traceback'}"
        )
    importer = place.words or "the importer"
    if top in sys.stdlib_module_names:
        if path and ("/site-packages/" in path or not _OF_PYTHON.search(path)):
            do = "uninstall the package that brought" if "/site-packages/" in path else "rename"
            return f"{do} {path}: it hides Python's own module {top}, which {importer} imports"
        return _of_standard_library(module, name, importer, place, path or "")
    if _NAMESPACE in raised.message:
        return (
            f"Python found only a folder called {top}, without the package: pip install "
            f"--force-reinstall {distribution(top)} (uv sync) with the job's Python, or, if a folder of "
            "that name in the working directory hides it, start the job from another folder (python -c "
            f"'import {top}; print({top}.__path__)' shows which one is imported)"
        )
    if place.package == top:
        return (
            f"the installation of {top} mixes two releases: pip install --force-reinstall {distribution(top)}"
        )
    of_package = f" (pip show {place.package})" if place.package else ""
    return (
        f"the installed {dated(top, lines)} has no {name}, which {importer} imports from {module}: they "
        f"are of different releases. Install the {top} that {importer} was made "
        f"for{of_package}{since(name, module, lines, raised.frames)}, or the {place.package or 'code'} "
        f"for this {top}"
    )


def since(name: str, module: str, lines: Sequence[Line], frames: Sequence[Frame] = ()) -> str:
    """Return the command that installs a release of a package whose module has a name, after a comma.

    "" if the command is not known, or the log names such a release.

    An empty name stands for the module itself.
    """
    package = module.partition(".")[0]
    limits = bounds_of(module, name)
    if not limits and name:
        limits = members_of(name, "").get(package, "") or _bounds_of_class(name, package)
    if name and limits == (bounds_of(module) or "?"):
        limits = ""  # the installed release has the module, which came with the name
    is_proposed = limits and not has_release(package, limits, lines)
    return f", {installing(package, limits, frames)}" if is_proposed else ""


def _bounds_of_class(name: str, package: str) -> str:
    """Return the bounds of the releases that have a class.

    "" if none is known by exactly this name, which may be misspelt.
    """
    exact = bounds_of(package, name) or members_of(name, "").get(package, "")
    return exact and (bounds(name, package) or exact)


def model_type(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a type of model that the installed transformers does not have."""
    found = _MODEL_TYPE.search(raised.message)
    if found is None and raised.name == "KeyError" and place.at.startswith("configuration_auto.py"):
        found = _BARE_TYPE.fullmatch(raised.message.strip())
    if found is None:
        return ""
    limits = bounds_of(f"transformers.models.{found[1]}") or bounds_of_part(
        f"transformers.models.{found[1]}."
    )
    if is_within(release_of("transformers", lines), limits):
        return (
            f"the log names {dated('transformers', lines)}, and {limits} has the model type {found[1]}: "
            "the process that failed imports another transformers, or files of two releases: pip "
            "install --force-reinstall transformers in that release, with the Python and on the node "
            "of this process"
        )
    install = f"pip install 'transformers{limits}'" if limits else "pip install -U transformers"
    return (
        f"{install}, the first release with the model type {found[1]}"
        if limits
        else f"{install} to a release with the model type {found[1]}"
    )


def conditional(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a name that a package imports only if a fitting release of another is installed."""
    found = _UNDEFINED.search(raised.message) if raised.name == "NameError" else None
    if found is None or not place.package or not found[1][:1].isupper():
        return ""
    others = [(package, limits) for package, limits in owners_of(found[1]) if package != place.package]
    owner, limits = others[0] if len(others) == 1 else (owner_of(found[1]), "")
    if owner == place.package:
        owner, limits = "", ""
    limits = limits or bounds(found[1], owner)
    if has_release(owner, limits, lines):
        limits = ""
    if not owner:
        return (
            f"{place.package} imports {found[1]} only if the package that defines it is installed in a "
            "release that fits, and here it is not: look at the conditional import at the top of "
            f"{place.at.partition(':')[0]} (is_..._available) and at what {place.package} requires (pip "
            "check), and install that package"
        )
    return (
        f"{place.package} imports {found[1]} only if {owner} is installed in a release that has it, and "
        f"the installed {dated(owner, lines)} does not: pip install "
        f"'{distribution(owner)}{limits}'{'' if limits else ' in a newer release'}, or a "
        f"{place.package} that requires less"
    )


def attribute(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on an attribute that a module, or an object of a well-known class, does not have."""
    if raised.name != "AttributeError":
        return ""
    if member := _absent_member(raised, place):
        return member
    if found := _NO_ATTRIBUTE.search(raised.message):
        module, name = found.groups()
        top = module.partition(".")[0]
        if f"{module}.{name}" in _PYTHON_OF:
            return _of_standard_library(
                module, name, place.words or "the caller", place, raised.frames[-1].path
            )
        if place.package == top and not raised.frames[-1].path.endswith("__init__.py"):
            again = (
                (
                    f"pip install --force-reinstall --no-cache-dir {distribution(top)}, and start Python "
                    "again (a notebook or server that runs still holds the release from before)"
                )
                if "-packages/" in raised.frames[-1].path
                else "update it (git pull, pip install -e . again), or correct that line"
            )
            return (
                f"{place.at} of this {dated(top, lines)} uses {name}, which its own {module} does not "
                f"define: the copy mixes two states, so {again}"
            )
        user = place.words if place.package != top else "another package"
        release = (
            (
                f"install the {distribution(top)} that {place.package} was made for (pip show "
                f"{place.package}, its installation guide){since(name, module, lines, raised.frames)}, or "
                f"the {place.package} for this one"
            )
            if place.package not in {"", top, REMOTE_CODE}
            else f"correct {place.words}"
            if place.words and not place.package
            else f"install another release (pip show {top})"
        )
        return (
            f"the {dated(top, lines)} that was imported has no {name}, which {user or 'the caller'} "
            f"uses: {release}, or, if a file or folder called {top} in the working directory hides it, "
            f"start the job from another folder (python -c 'import {top}; print({top}.__file__)' shows "
            "which one is imported)"
        )
    if _ENCODED.search(raised.message):
        return (
            "transformers 5 returns a BatchEncoding, not token ids, from "
            "apply_chat_template(tokenize=True): pip install 'transformers<5', or install a newer "
            f"{place.package or 'release of the code'}, or pass return_dict=False there"
        )
    if found := NO_MEMBER.search(raised.message):
        cls, name = found[1] or found[3] or found[5], found[2] or found[4] or found[6]
        if confused := _of_another_model(cls, raised) or _no_processor(cls, name, raised.frames, lines):
            return confused
        engine = next(
            (package for package in ("sglang", "vllm", "megatron") if name.startswith(f"{package}_")), ""
        )
        if cls == "Namespace" and place.package and place.package not in _OF_ENGINES and not place.caller:
            return _of_entry_point(name, place, raised)
        if cls == "Namespace" and engine and place.package not in {"", engine}:
            return (
                f"{place.words} makes its arguments from those of {engine}, and the installed "
                f"{dated(engine, lines)} has no {name.removeprefix(f'{engine}_')}: they are of "
                f"different releases. Install the {engine} that {place.words} names (its Dockerfile or "
                f"image of a fixed tag, not latest), or a newer {place.words}"
            )
        if name in _OF_TEXT and cls[:1].isupper() and cls != "NoneType" and place.package:
            return _of_text(cls, place, raised)
        if (wrapped := of_wrapper(cls, name, place)) or (other := of_subclass(cls, name, place)):
            return wrapped or other
        owner = owner_of(cls)
        served = served_package(raised.frames, place.package) if owner else ""
        if served and not any(package_of(frame) == owner for frame in raised.frames):
            owner = served  # several packages have a class of this name
        if owner and place.words and not is_named_by(owner, cls, raised.frames, lines):
            return (
                f"{cls} has no {name}: correct {place.words}, or, if the class is that of {owner} and none "
                f"of the job, install the {owner} that the code was written for"
            )
        if owner and place.words and place.package != owner:
            return (
                f"{cls} of the installed {dated(owner, lines)} has no {name}, which {place.words} uses: "
                f"install the {owner} that it was made for (pip show {place.package or owner}), or a "
                f"newer {place.package or 'release of the code'}"
            )
    return ""


def _of_text(cls: str, place: Place, raised: Raised) -> str:
    """Return advice on an object that was passed where a package expects a text."""
    job = next((shown_at(frame) for frame in reversed(raised.frames) if is_of_the_job(frame)), "")
    where = f" ({job} passes it)" if job else ""
    return (
        f"{place.at} of {place.package} expects a text and was given a {cls}{where}: pass the path or the "
        "name instead of the object, for a tokenizer or a model that of its folder"
    )


def _of_entry_point(name: str, place: Place, raised: Raised) -> str:
    """Return advice on an argument that the parser of a package's entry point does not define.

    The code of the entry point reads it nevertheless.
    """
    entry = next(shown_at(frame) for frame in raised.frames if package_of(frame) == place.package)
    return (
        f"{place.package} reads the argument {name}, which the entry point that ran "
        f"({entry.partition(':')[0]}) does not define: start the entry point of {place.package} that "
        f"defines --{name} (grep -rn {name} in its folder), or install a newer {place.package}, or the "
        "one of the script"
    )


def _of_standard_library(module: str, name: str, user: str, place: Place, path: str) -> str:
    """Return advice on a name that a newer Python has in its standard library."""
    brought_by = _PYTHON_OF.get(f"{module}.{name}", "")
    present = _PYTHON.search(path)
    python = f"this Python ({present[1]})" if present is not None else "this Python"
    create = (
        f"Python {brought_by} or newer" if brought_by else f"the Python that {user} names (requires-python)"
    )
    return (
        f"{python} has no {name} in its standard module {module}, which {user} imports: create the "
        f"environment with {create}, or install another release of {place.package or 'the code'}"
    )


def _of_another_model(cls: str, raised: Raised) -> str:
    """Return advice on a configuration of one model that the code of another one reads."""
    config = _MODEL_CONFIG.fullmatch(cls)
    files = [found[1] for frame in raised.frames if (found := _MODEL_FILE.search(frame.path))]
    if config is None or not files:
        return ""
    model, code = config[1].replace("_", "").lower(), files[-1].replace("_", "").lower()
    families = {found[0] for part in (model, code) if (found := _FAMILY.match(part))}
    if len(families) == 1 and not model.startswith(code) and not code.startswith(model):
        return (
            f"the checkpoint is of another model than the class that loads it: {cls} is not for the "
            f"code in models/{files[-1]}. Load it with the class in architectures of its config.json "
            f"({config[1]}ForConditionalGeneration or {config[1]}ForCausalLM; "
            "AutoModelForImageTextToText, AutoModelForCausalLM find it)"
        )
    return ""


def _no_processor(cls: str, name: str, frames: Sequence[Frame], lines: Sequence[Line]) -> str:
    """Return advice on a tokenizer that is used as a processor, which transformers did not find."""
    if not cls.endswith(("Tokenizer", "TokenizerFast", "TokenizersBackend")) or name not in {
        "tokenizer",
        "image_processor",
        "video_processor",
        "feature_extractor",
        "image_token",
    }:
        return ""
    returned = (
        f"AutoProcessor returned a tokenizer ({cls}), because"
        if any(
            "AutoProcessor" in text
            for text in (*(frame.code for frame in frames), *(line.text for line in lines))
        )
        else f"a tokenizer ({cls}) is used as a processor; if AutoProcessor.from_pretrained returned it,"
    )
    return (
        f"{returned} this {dated('transformers', lines)} does not have the model's processor, or the "
        "model's folder lacks preprocessor_config.json: install a newer transformers (its model card "
        "names the first release: transformers>=4.49 for Qwen2.5-VL, >=4.57 for Qwen3-VL), or download "
        "the folder again"
    )


def _absent_member(raised: Raised, place: Place) -> str:
    """Return advice on a member that another package's enumeration lacks: the message is only its name."""
    found = _BARE.match(raised.message.strip())
    used = re.search(rf"\b([A-Z]\w+)\.{found[1]}\b", place.code) if found is not None else None
    if found is None or used is None:
        return ""
    owner = owner_of(used[1]) or _hosts(place.package)
    file = place.at.partition(":")[0]
    package = (
        distribution(owner) if owner else f"the package from which {file} imports {used[1]} (at its top)"
    )
    return (
        f"{used[1]} of the installed {owner or 'release'} has no member {found[1]}, which "
        f"{place.words or 'the caller'} uses: pip install -U {package}, or the "
        f"{place.package or 'code'} for this release"
    ) + (
        f": the releases of {place.package} and {owner} must be equal"
        if owner == _hosts(place.package) != ""
        else ""
    )


def _hosts(package: str) -> str:
    """Return the engine that a plugin extends: vllm for vllm_ascend; "" for any other package."""
    host, found, _ = package.partition("_")
    return host if found and host in {"vllm", "sglang"} else ""


def never_set(raised: Raised, place: Place) -> str:
    """Return advice on a variable that no branch of a function has set."""
    found = _NEVER_SET.search(raised.message) if raised.name == "UnboundLocalError" else None
    if found is None or not place.package:
        return ""
    name = found[1] or found[2]
    by = _CHOSEN_BY.get(name, "") if place.package == "verl" else ""
    chosen = (
        f"{by} has a value"
        if by
        else (
            "a setting that selects the branch (a name, a backend, a mode) has a value, or an input is empty,"
        )
    )
    return (
        f"no branch at {place.at} sets {name}: {chosen} that {place.package} does not handle there; choose "
        f"another one, or install a newer {place.package}"
    )
