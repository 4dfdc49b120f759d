"""Advice on packages and modules that are missing, or installed in another release than required."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.demands import demanded, for_shell
from verl_doctor.toolkit.logs.advice.installed import dated
from verl_doctor.toolkit.logs.advice.places import Place
from verl_doctor.toolkit.logs.advice.undefined import since
from verl_doctor.toolkit.logs.blame import announcement
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import (
    distribution,
    has_other_name,
    has_same_name,
    installed_as,
    is_known,
    provider,
    tree_of,
)
from verl_doctor.toolkit.logs.python_errors import Raised

_MISSING = re.compile(r"No module named '?([A-Za-z_][\w.]*)'?")
_OTHER_GPUS = " (for CUDA 13 cupy-cuda13x; on AMD GPUs build it: CUPY_INSTALL_USE_HIP=1 pip install cupy)"
_ASSIGNED = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+=\w")
_NEEDED = re.compile(r"^([A-Z][\w-]*) (?:is )?required (?:to use|for) \w")
_PIP = re.compile(
    r"[`'\"]?((?:uv )?pip3? install [^`;|\n]{2,80}?)(?:[`\"]|'?\.(?:\s|$)|'(?:\s|$)|\.?$)", re.MULTILINE
)
_NOT_INSTALLED = re.compile(
    r"the package (?:for )?(\w[\w-]*) (?:seems to be not installed|doesn't seem to be installed)"
    r"|requires? the following packages? [^:]*: ([\w-]+)|[Rr]equires the (\w[\w-]*) (?:library|package)"
    r"|No package metadata was found for ([\w-]+)|[Pp]lease install (?:the )?`?([\w-]+)`? (?:first|to )"
    r"|^(?!Module\b|Package\b|Library\b|It\b|This\b)([A-Za-z][\w-]*) (?:was|is) not (?:found"
    r"|installed)\b"
)
_BOUNDS = r"(?:>=|<=|==|~=|<|>) ?\d[\w.]*(?: ?, ?(?:>=|<=|!=|<|>) ?\d[\w.]*)*"
_REQUIRED = re.compile(
    rf"(?<![\w.-])([A-Za-z][\w-]*) ?({_BOUNDS}) is required|[Rr]equires? (?:[A-Za-z]\w* version )?`?("
    rf"[A-Za-z][\w-]*)`? ?({_BOUNDS})|(?<![\w.-])([A-Za-z][\w-]*) with minimum required version (\d"
    r"[\w.]*)"
)
# Projects whose name is not that of their distribution.
_WRITTEN_AS = {
    "PyTorch": "torch",
    "Pytorch": "torch",
    "pytorch": "torch",
    "FlashAttention": "flash-attn",
    "Triton": "triton",
    "Transformers": "transformers",
    "DeepSpeed": "deepspeed",
    "NumPy": "numpy",
    "Numpy": "numpy",
    "Accelerate": "accelerate",
    "Apex": "apex",
    "PEFT": "peft",
    "Ray": "ray",
    "vLLM": "vllm",
    "FlashInfer": "flashinfer-python",
}
_LAZY = "Failed to import "  # transformers and trl, of a module that they import when it is used
_WITHOUT_FLASH_ATTENTION = "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"


def recommended(raised: Raised, place: Place) -> str:
    """Return advice on a package that an installed package recommends in its error message."""
    if not raised.name.endswith(("ImportError", "ModuleNotFoundError", "PackageNotFoundError")):
        return ""
    if found := _PIP.search(raised.message):
        return f"{for_shell(found[1].strip())}, with the job's Python, on every node"
    if _ASSIGNED.search(raised.message) and (demand := demanded(raised)):
        return demand
    if found := _NOT_INSTALLED.search(raised.message):
        name = next(filter(None, found.groups())).strip()
        how = _installing(name, known=True) + (f": {place.words} requests it" if place.words else "")
        if "FlashAttention" in raised.message:
            how += f"; or do without it: {_WITHOUT_FLASH_ATTENTION}"
        if raised.name == "PackageNotFoundError":
            how += (
                f"; if {name} is a source tree on PYTHONPATH, which has no metadata, run pip install "
                f"--no-deps -e . in it, or use a release of {place.words or 'the caller'} that does not "
                "query its version"
            )
        return how
    return ""


def needed(raised: Raised, place: Place) -> str:
    """Return advice on a package that a message calls required."""
    if (found := _NEEDED.search(raised.message)) is None or not place.package:
        return ""
    return f"{_installing(found[1], known=True)}: {place.words} requires it"


def of_version(raised: Raised, place: Place) -> str:
    """Return advice on a package that is installed in another release than a message requires."""
    found = _REQUIRED.search(raised.message)
    if found is None:
        return ""
    name, bounds = (
        (found[1] or found[3], found[2] or found[4]) if found[5] is None else (found[5], f">={found[6]}")
    )
    if name.lower() in {"python", "version", "cuda", "and", "or"}:
        return ""
    name = _WRITTEN_AS.get(name, name)
    by = f", as {place.words} requires" if place.words else ""
    return (
        f"pip install '{name}{''.join(bounds.split()).rstrip('.')}' with the job's Python, on every node{by}"
    )


def announced(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on an undefined name whose package an earlier line reports as not installed."""
    found = announcement(raised, lines)
    if found is None:
        return ""
    name = found[0].replace("-", "_")
    user = (
        f": {place.words} uses it, and only an earlier line reports that it is missing" if place.words else ""
    )
    return f"{_installing(name, known=True)}{user}"


def module(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a missing module: no package installed, or a release without the module."""
    found = _MISSING.search(raised.message)
    is_import = raised.name.endswith(("ImportError", "ModuleNotFoundError"))
    if found is None or not (is_import or _LAZY in raised.message):
        return ""
    module = found[1]
    top, dot, _ = module.partition(".")
    if place.package == "ray" and not is_known(top):
        return (
            f"Ray's worker does not find {top}, which an object or a function of the job comes from: "
            "install it on every node, or add its folder to PYTHONPATH before ray start on every node, "
            "or to working_dir or py_modules of the job's runtime_env (ray job submit --runtime-env)"
        )
    if shipped := provider(module):
        return (
            f"pip install {shipped} with the job's Python, on every node: it provides {module}, which "
            f"{place.words or 'the importer'} imports"
        )
    if tree := tree_of(module):
        return (
            f"the wheel of {distribution(top)} has no {'.'.join(module.split('.')[:2])}: git clone "
            f"{tree}, check out the tag of the release that {place.words or 'the importer'} names, and "
            "add its folder to PYTHONPATH on every node (ms-swift: MEGATRON_LM_PATH)"
        )
    if dot and top == place.package:
        return (
            f"the installation of {top} is incomplete or mixes two releases: its own module {module} is "
            f"missing. pip install --force-reinstall --no-cache-dir {distribution(top)} with the job's "
            "Python"
        )
    if dot and is_known(top):
        return (
            f"the installed {dated(top, lines)} has no module {module}, which "
            f"{place.words or 'its importer'} imports: install the release of {top} that "
            f"{place.words or 'it'} was made for{since('', module, lines, raised.frames)}, or another "
            f"release of {place.package or 'the importer'}"
        )
    if place.package == "" and not is_known(top):
        return (
            (
                f"{place.words} imports {top}: if it is part of the job, add its folder to PYTHONPATH on "
                "every node, or to working_dir of the runtime_env"
            )
            if place.words
            else ""
        )
    how = _installing(top, known=has_same_name(top))
    if not is_known(top) and raised.frames and "-packages/" not in raised.frames[-1].path:
        how += (
            " (a submodule of the source tree: git submodule update --init --recursive, or one of its extras)"
        )
    return f"{how}: {place.words} imports it" if place.words else how


def _installing(name: str, *, known: bool) -> str:
    """How to install a module or a package. `known` is whether an unfamiliar name is that of a package."""
    top = name if has_other_name(name) else name.lower()
    same = name.replace("_", "-") if known or has_same_name(name) else ""
    if requirement := installed_as(top) if has_other_name(top) else same:
        other = _OTHER_GPUS if "-cuda" in requirement else ""
        return f"pip install {requirement} with the job's Python, on every node{other}"
    return (
        f"install the package that provides the module {top} with the job's Python, from its project if the "
        "package index does not have it"
    )
