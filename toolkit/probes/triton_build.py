"""Compiles and links a few lines as the installed Triton would. Runs under the target's interpreter.

Triton is not imported, which would take seconds and a GPU: its functions that find libcuda and call the
compiler are extracted from its sources and run. Called with a token, Triton's folder, and the seconds allowed
for each run of the compiler. Needs the standard library only.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

# Where releases have `_build` and `libcuda_dirs`: 3.0 and later, 2.x.
FILES = ("backends/nvidia/driver.py", "runtime/build.py", "common/build.py")
KNOBS = "knobs.py"
INCLUDING = (
    "backends/nvidia/driver.c",
    "backends/nvidia/driver.py",
    "runtime/backends/cuda.c",
    "compiler/make_launcher.py",
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"](?!hip/)[\w./]+[>"])', re.MULTILINE)
VARIABLE = "TRITON_LIBCUDA_PATH"
FUNCTION = "cuInit"
PROGRAM = f"int {FUNCTION}(unsigned int);\nint verl_doctor(void) {{ return {FUNCTION}(0); }}\n"
MOST_READ = 1_000_000  # bytes of compiler output
NOT_TAKEN = ("triton", "torch", "setuptools")


class HangsError(Exception):
    """A command that did not end in time."""


class Recorder:
    """Replaces the module `subprocess`: records the compilers' arguments and output."""

    def __init__(self, patience: float) -> None:
        self.command: list[str] = []
        self.output = ""
        self._patience = patience

    def check_call(self, command: list[str], **_: Any) -> int:
        """Run a command as Triton would, and record the output."""
        self.command = list(command)
        code, self.output = self.run_limited(command)
        if code:
            raise subprocess.CalledProcessError(code, command)
        return 0

    def run_limited(self, command: list[str]) -> tuple[int, str]:
        """Run a program; return the exit code and the output.

        A program that hangs or prints endlessly is killed.
        """
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            hangs = threading.Event()

            def give_up() -> None:
                hangs.set()
                end_group(process.pid)

            watch = threading.Timer(self._patience, give_up)
            watch.start()
            out = process.stdout.read(MOST_READ) if process.stdout else b""
            if len(out) == MOST_READ:
                end_group(process.pid)
            process.wait()
            watch.cancel()
        if hangs.is_set():
            raise HangsError(" ".join(command))
        text = out.decode("utf-8", "replace")
        return process.returncode, text or f"it printed nothing (exit code {process.returncode})"

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


class Knobs:
    """A replacement for Triton's settings; `knobs.nvidia.libcuda_path` is the variable its source names.

    Triton's settings are a table.
    """

    def __init__(self, text: str) -> None:
        self._variables: dict[tuple[str, str], str] = {}
        for group in (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
            for node in group.body:
                match node:
                    case ast.AnnAssign(
                        target=ast.Name(id=name), value=ast.Call(args=[ast.Constant(value=str(variable)), *_])
                    ):
                        self._variables[group.name, name] = variable

    def __getattr__(self, group: str) -> Any:
        return type("Group", (), {"__getattr__": lambda _, name: self.get(group, name)})()

    def get(self, group: str, name: str) -> Any:
        """Return the value of one setting, empty if no variable sets it."""
        variable = self._variables.get((f"{group}_knobs", name))
        return os.environ.get(variable) if variable else ()


def end_group(pid: int) -> None:
    """Kill a compiler and the passes that it started, which hold the same pipe."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def text_of(path: str) -> str:
    """Return the text of a file, "" if it does not exist."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def names_of(path: str, into: dict[str, Any]) -> None:
    """Extract imports, assignments and functions from a source file, as far as they need no other package."""
    into["__file__"] = path
    for node in ast.parse(text_of(path)).body:
        match node:
            case ast.ImportFrom(module=module, level=level) if (
                level or str(module).split(".")[0] in NOT_TAKEN
            ):
                continue
            case ast.Import(names=names) if any(alias.name.split(".")[0] in NOT_TAKEN for alias in names):
                continue
            case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign() | ast.FunctionDef():
                part = ast.Module(body=[node], type_ignores=[])
                flags = __future__.annotations.compiler_flag
                try:
                    exec(compile(part, path, "exec", flags), into)  # noqa: S102 - the target's own code, under its Python
                except Exception:  # noqa: BLE001, S112 - what cannot be had alone is not needed here
                    continue


class Triton:
    """One installed Triton: its own functions, its header folders, and what they include."""

    def __init__(self, folder: str, recorder: Recorder) -> None:
        self.names: dict[str, Any] = {}
        self.recorder = recorder
        files = [f"{folder}/{file}" for file in FILES if text_of(f"{folder}/{file}")]
        for path in files:
            names_of(path, self.names)
        knobs = text_of(f"{folder}/{KNOBS}")
        self.names.update(subprocess=self.recorder, knobs=Knobs(knobs), is_hip=lambda: False)
        self.is_known = {"_build", "libcuda_dirs"} <= set(self.names)
        self.reads_variable = VARIABLE in knobs or any(VARIABLE in text_of(path) for path in files)
        including = "\n".join(text_of(f"{folder}/{file}") for file in INCLUDING)
        self.headers = list(dict.fromkeys(INCLUDE.findall(including)))

    def look_up(self) -> list[str]:
        """Return the folders that it would pass to the linker for libcuda. Raises what Triton would."""
        folders = list(self.names["libcuda_dirs"]())
        self.names["libcuda_dirs"] = lambda: folders
        return folders

    def build(self, source: str, folders: list[str]) -> None:
        """Call its `_build`, whatever parameters this release has. Raises what Triton would."""
        names, function = self.names, self.names["_build"]
        names["libcuda_dirs"] = lambda: folders
        given = {
            "name": "verl_doctor",
            "src": source,
            "srcdir": os.path.dirname(source),  # noqa: PTH120
            "library_dirs": [*([names["libdevice_dir"]] if "libdevice_dir" in names else []), *folders],
            "include_dirs": names.get("include_dirs") or names.get("include_dir") or [],
            "libraries": names.get("libraries") or [],
        }
        function(**{name: given.get(name, []) for name in inspect.signature(function).parameters})


def write(path: str, text: str) -> None:
    """Write a source file."""
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(text)


def examine(folder: str, private: str, patience: float) -> dict[str, Any]:
    """Return the full report on the Triton in a folder; `private` is for the compiler's files."""
    recorder = Recorder(patience)
    triton = Triton(folder, recorder)
    if not triton.is_known:
        return {"unknown": "this Triton searches for libcuda in an unknown way"}
    report: dict[str, Any] = {"reads_variable": triton.reads_variable, "folders": []}
    try:
        try_out(triton, private, report)
    except HangsError as error:
        report.update(compiler=recorder.command[0], hangs=str(error))
    return report


def try_out(triton: Triton, private: str, report: dict[str, Any]) -> None:
    """Find libcuda, compile and link against it, and read the headers. Raises `HangsError`."""
    recorder = triton.recorder
    try:
        report["folders"] = triton.look_up()
    except Exception as error:  # noqa: BLE001 - whatever it raises, Triton raises too
        report["lookup_error"] = f"{type(error).__name__}: {error}"
    source = os.path.join(private, "main.c")  # noqa: PTH118
    write(source, PROGRAM)
    try:
        triton.build(source, report["folders"])
    except HangsError:
        raise
    except subprocess.CalledProcessError:
        report["link_error"] = recorder.output
    except Exception as error:  # noqa: BLE001 - no compiler, or one that cannot be started
        report.update(compiler="".join(recorder.command[:1]), compiler_error=str(error))
        return
    command = recorder.command
    report["compiler"] = command[0]
    report["library"] = "".join(word for word in command if word.startswith("-l"))
    report["version"] = recorder.run_limited([command[0], "--version"])[1].partition("\n")[0]
    if "link_error" not in report:
        # A library may lack symbols until it is loaded: a libcuda without the driver's functions would go
        # unnoticed.
        code, traced = recorder.run_limited([*command, "-Wl,--trace,-z,defs"])
        files = [line.strip() for line in traced.splitlines() if "/libcuda.so" in line]
        report["linked"] = files[0] if files else ""
        lacking = [line for line in traced.splitlines() if FUNCTION in line]
        if code and lacking:
            report["link_error"] = lacking[-1]
    else:
        write(source, "int verl_doctor(void) { return 0; }\n")
        code, output = recorder.run_limited([word for word in command if not word.startswith("-l")])
        if code:
            report["compiler_error"] = output
            return
    check = [*command, "-fsyntax-only"]
    write(source, "".join(f"#include {header}\n" for header in triton.headers))
    if recorder.run_limited(check)[0]:
        report["missing_headers"] = list(missing(triton.headers, source, check, recorder))


def missing(headers: list[str], source: str, check: list[str], recorder: Recorder) -> Iterator[str]:
    """Yield those that the compiler does not find, or cannot read."""
    for header in headers:
        write(source, f"#include {header}\n")
        if recorder.run_limited(check)[0]:
            yield header.strip('<>"')


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as private:
        print(f"\n{sys.argv[1]}{json.dumps(examine(sys.argv[2], private, float(sys.argv[3])))}")
