"""Compiling and linking as Triton would: a miniature of it, and real releases."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.compiled import build
from support.elf_files import place
from support.miniatures.triton import write_triton

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.kernels import triton_build as kernels_triton_build
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild, triton_build
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

NAME = "libcuda.so.1"
NO_VERL = Absent("no verl")
DRIVER = "int cuInit(unsigned flags) { return 0; }"
ATOMIC = "#include <stdatomic.h>"


def driver(folder: Path) -> Path:
    """A folder that holds the driver's library under the loader's name only."""
    return build(folder, NAME, DRIVER, f"-Wl,-soname,{NAME}").parent


def look(
    root: Path, site: Path, rollout: RolloutModule | Unknown = NO_VERL, **environ: str
) -> TritonBuild | Unknown:
    if not (root / "dev/nvidia0").exists():
        place(root, "/dev/nvidia0", b"")
    environ = {"PATH": os.environ["PATH"], **environ}
    python = replace(PYTHON, executable=sys.executable, sys_path=(str(site),))
    return triton_build.collect(
        Machine(environ=environ, root=root), python, Variables(environ), JobVariables(environ), rollout
    )


def found(root: Path, site: Path, **environ: str) -> TritonBuild:
    seen = look(root, site, **environ)
    assert isinstance(seen, TritonBuild), seen
    return seen


@pytest.mark.slow
def test_driver_without_the_linker_name_cannot_be_linked(tmp_path: Path) -> None:
    """`-lcuda` means libcuda.so, which drivers in containers often lack."""
    folder = driver(tmp_path / "driver")
    write_triton(tmp_path, include=ATOMIC)
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(folder))
    assert (seen.folders, seen.library, seen.linked) == ((str(folder),), "-lcuda", "")
    assert "-lcuda" in seen.link_error
    assert (seen.compiler_error, seen.lookup_error, seen.missing_headers) == ("", "", ())
    (folder / "libcuda.so").symlink_to(NAME)
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(folder))
    assert (seen.link_error, seen.linked) == ("", str(folder / "libcuda.so"))
    assert seen.reads_variable


@pytest.mark.slow
def test_release_that_links_against_the_loader_name(tmp_path: Path) -> None:
    folder = driver(tmp_path / "driver")
    write_triton(tmp_path, library=NAME)
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(folder))
    assert (seen.library, seen.link_error) == (f"-l:{NAME}", "")


@pytest.mark.slow
def test_variable_set_by_verl_has_lower_priority_than_the_shell(tmp_path: Path) -> None:
    write_triton(tmp_path)
    module = RolloutModule("/verl/__init__.py", {"TRITON_LIBCUDA_PATH": "/by-verl"})
    environ = {"CC": "/nowhere/cc"}
    for given, folder in (({}, "/by-verl"), ({"TRITON_LIBCUDA_PATH": "/by-shell"}, "/by-shell")):
        seen = look(tmp_path, tmp_path, module, **environ, **given)
        assert isinstance(seen, TritonBuild)
        assert seen.folders == (folder,)


@pytest.mark.slow
def test_library_without_driver_functions_does_not_count(tmp_path: Path) -> None:
    """An empty one satisfies a linker that builds a library, and the launcher cannot be loaded afterwards."""
    folder = build(tmp_path / "empty", NAME, "int nothing;", f"-Wl,-soname,{NAME}").parent
    write_triton(tmp_path, library=NAME)
    assert "cuInit" in found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(folder)).link_error


@pytest.mark.slow
def test_library_path_is_used_by_the_linker(tmp_path: Path) -> None:
    folder = driver(tmp_path / "driver")
    (folder / "libcuda.so").symlink_to(NAME)
    write_triton(tmp_path)
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(tmp_path), LIBRARY_PATH=str(folder))
    assert seen.linked == str(folder / "libcuda.so")


@pytest.mark.slow
def test_failed_library_search_is_reported(tmp_path: Path) -> None:
    write_triton(tmp_path)
    assert found(tmp_path, tmp_path).lookup_error == "AssertionError: libcuda.so cannot found!"


@pytest.mark.slow
def test_no_ldconfig(tmp_path: Path) -> None:
    write_triton(tmp_path, ldconfig="/nowhere/ldconfig")
    seen = found(tmp_path, tmp_path)
    assert seen.lookup_error.startswith("FileNotFoundError")
    assert "/nowhere/ldconfig" in seen.lookup_error


@pytest.mark.parametrize(
    ("environ", "compiler", "message"),
    [
        ({"PATH": "/nowhere"}, "", "Failed to find C compiler."),
        ({"CC": "/nowhere/cc"}, "/nowhere/cc", "No such file or directory"),
        ({"CC": "false"}, "false", ""),
    ],
)
def test_no_compiler(tmp_path: Path, environ: dict[str, str], compiler: str, message: str) -> None:
    write_triton(tmp_path)
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH="/a", **environ)
    assert (seen.compiler, bool(seen.compiler_error)) == (compiler, True)
    assert message in seen.compiler_error


@pytest.mark.slow
def test_headers(tmp_path: Path) -> None:
    folder = driver(tmp_path / "driver")
    write_triton(tmp_path, library=NAME, include="#include <not_there.h>\n# include <stdint.h>")
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(folder))
    assert (seen.link_error, seen.missing_headers) == ("", ("not_there.h",))


@pytest.mark.slow
def test_missing_python_headers_are_reported(tmp_path: Path) -> None:
    folder = driver(tmp_path / "driver")
    build_py = write_triton(tmp_path, library=NAME) / "runtime/build.py"
    build_py.write_text(build_py.read_text().replace('sysconfig.get_paths()["include"]', '"/nowhere"'))
    assert found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH=str(folder)).missing_headers == ("Python.h",)


@pytest.mark.slow
def test_triton_without_known_functions_is_unknown(tmp_path: Path) -> None:
    (write_triton(tmp_path) / "runtime/build.py").write_text("")
    seen = look(tmp_path, tmp_path)
    assert isinstance(seen, Unknown)
    assert "unknown way" in seen.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "command"), [("", "main.c -shared"), ('[ "$1" = --version ] || exit 0', "cc --version")]
)
def test_hanging_compiler_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, command: str
) -> None:
    """The compiler's passes hold the same pipe: the shell's `sleep` represents one."""
    monkeypatch.setattr(kernels_triton_build, "_COMPILER_TIMEOUT", 1.0)
    compiler = tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\n{output}\nsleep 60\ntrue\n")
    compiler.chmod(0o755)
    write_triton(tmp_path)
    seen = found(tmp_path, tmp_path, TRITON_LIBCUDA_PATH="/a", CC=str(compiler))
    assert (seen.compiler, seen.patience, seen.compiler_error) == (str(compiler), 1.0, "")
    assert command in seen.hangs


def test_no_triton_and_no_gpu(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path, tmp_path), Absent)
    write_triton(tmp_path)
    (tmp_path / "dev/nvidia0").rename(tmp_path / "dev/other")
    environ: dict[str, str] = {}
    machine = Machine(environ=environ, root=tmp_path)
    python = replace(PYTHON, sys_path=(str(tmp_path),))
    assert isinstance(
        triton_build.collect(machine, python, Variables(environ), JobVariables(environ), NO_VERL), Absent
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "library", "reads_variable"), [("2.1.0", "-lcuda", False), ("3.6.0", f"-l:{NAME}", True)]
)
def test_real_releases(
    tmp_path: Path, wheel_tree: Callable[[str, str], Path], version: str, library: str, reads_variable: bool
) -> None:
    """Library names passed to the linker, search folders, and whether the headers compile."""
    folder = driver(tmp_path / "driver")
    (folder / "libcuda.so").symlink_to(NAME)
    places = {"TRITON_LIBCUDA_PATH": str(folder), "LIBRARY_PATH": str(folder)}
    seen = found(tmp_path, wheel_tree("triton", version), **places)
    assert (seen.library, seen.reads_variable) == (library, reads_variable)
    assert seen.folders == ((str(folder),) if reads_variable else ())
    assert Path(seen.linked).parent == folder
    assert (seen.link_error, seen.compiler_error, seen.missing_headers) == ("", "", ())
