"""How the installed torch was built: its version, its CUDA, and its C++ ABI."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.elf.elf import ElfFile

# A constructor that takes a std::string, in libc10.so of every torch since 1.13. Its mangled name reveals the
# ABI.
_NEW_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_OLD_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
_LARGEST = 64 * 1024


@dataclass(frozen=True)
class TorchBuild:
    """The torch that an import loads, read from its folder.

    `version` is torch's own string ("2.8.0+cu128"). `cuda` is the CUDA version that it was built with, `hip`
    that of ROCm, `xpu` Intel's; each "" for none. `cxx11_abi`: whether it uses the new ABI's std::string;
    None if the library does not show it.
    """

    folder: str
    version: str
    cuda: str = ""
    cxx11_abi: bool | None = None
    hip: str = ""
    xpu: str = ""


@collector(kept=True)
def torch_build(interpreter: Interpreter) -> TorchBuild | Unknown:
    """Read torch/version.py and libc10.so's exports in the first folder on the path that has a torch."""
    folder = next(
        (f"{site}/torch" for site in interpreter.sys_path if os.path.isfile(f"{site}/torch/__init__.py")), ""
    )
    if not folder:
        return Absent("torch is not installed")
    try:
        text = Path(folder, "version.py").read_bytes()[:_LARGEST].decode("utf-8", "replace")
        constants = dict(_constants(text))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return Unknown(f"which torch this is cannot be read from {folder}/version.py: {error}")
    return TorchBuild(
        folder=folder,
        version=str(constants.get("__version__", "")),
        cuda=str(constants.get("cuda") or ""),
        cxx11_abi=_cxx11_abi(f"{folder}/lib/libc10.so"),
        hip=str(constants.get("hip") or constants.get("rocm") or ""),
        xpu=str(constants.get("xpu") or ""),
    )


def _constants(text: str) -> list[tuple[str, Any]]:
    """Names that are assigned a constant, with or without an annotation."""
    found = []
    for node in ast.parse(text).body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant):
            found += [(target.id, value.value) for target in targets if isinstance(target, ast.Name)]
    return found


def _cxx11_abi(library: str) -> bool | None:
    with ElfFile(library) as file:
        if file.exports(_NEW_ABI):
            return True
        return False if file.exports(_OLD_ABI) else None
