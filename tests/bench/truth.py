"""The truth about a pair of releases, from really importing them: see `real_imports.py`, which does it in a child."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MOST_ATTEMPTS = 60


@dataclass
class Truth:
    """What importing told. `breaks` are (file, line, module, name) that verl's modules fail at."""

    breaks: list[tuple[str, int, str, str]] = field(default_factory=list)
    ended: str = ""
    foreign: int = 0


def server(python: Path, program: str, home: Path, arguments: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a program of the folder `real` that answers JSON lines, without GPUs and what the caller's environment sets."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLLM_"))}
    environ |= {
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.Popen(
        [str(python), str(Path(__file__).parent / "real" / f"{program}.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(home / f"{program}.log").open("a"),
        text=True,
        env=environ,
        cwd=home,
    )


class Oracle:
    """One server process. Places at which the interpreter, and not vLLM, was lacking are learnt and kept.

    `without` are packages that it does not load before it is asked.
    """

    def __init__(self, python: Path, home: Path, without: Sequence[str] = ()) -> None:
        self.home, self.verl, self.path = home, home, list[str]()
        self.learnt: set[tuple[str, int]] = set()
        self.known: dict[str, dict[tuple[str, str], str]] = {}
        self.process = server(python, "real_imports", home, without)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{python} cannot run the imports: see {home}/real_imports.log")

    def ask(self, do: str, of: Sequence[Any], allowed: set[tuple[str, int]]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"path": self.path, "do": do, "of": list(of), "allowed": sorted(self.learnt | allowed)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def begin(self, verl: Path, vllm: Path, version: str) -> None:
        """Take up a pair: what goes first on the path.

        Metadata of a `vllm` of this version are made, since verl asks for that name and wheels may be named otherwise.
        """
        made = self.home / version
        metadata = made / f"vllm-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
        self.verl = verl
        self.path = [str(made), str(verl.parent), str(vllm.parent)]

    def load(self, modules: Sequence[str]) -> Truth:
        """Import verl's modules. What they lack of vLLM is noted and made good, until they load or fail otherwise."""
        truth, allowed = Truth(), set[tuple[str, int]]()
        for _ in range(_MOST_ATTEMPTS):
            said = self.ask("load", modules, allowed)
            failed = said.get("failed")
            truth.breaks = [
                (file, line, module, name)
                for file, line, module, name in said.get("lacking", ())
                if file.startswith(str(self.verl)) and module.partition(".")[0] == "vllm"
            ]
            truth.foreign = len(said.get("lacking", ())) - len(truth.breaks)
            if failed is None:
                return truth
            place = failed["file"], failed["line"]
            repairable = failed.get("type") in {"ImportError", "ModuleNotFoundError"}
            if not repairable or place in self.learnt | allowed or not failed["file"]:
                truth.ended = f"{failed['said']} at {failed['file']}:{failed['line']}"
                return truth
            about_vllm = failed["module"].partition(".")[0] == "vllm"
            (allowed if about_vllm and failed["file"].startswith(str(self.verl)) else self.learnt).add(place)
        truth.ended = "too many attempts"
        return truth

    def names(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Whether each (module, name) can be imported."""
        found = self.known.setdefault(self.path[-1], {})
        rest = [use for use in wanted if use not in found]
        while rest:
            said = self.ask("names", rest, set())
            found |= dict(zip(rest, said.get("found", ()), strict=False))
            rest = rest[len(said.get("found", ())) :]
            if (failed := said.get("failed")) is not None and rest:
                place = failed["file"], failed["line"]
                if place in self.learnt or not failed["file"]:
                    found[rest[0]] = f"undetermined: {failed['said']}"
                    rest = rest[1:]
                self.learnt.add(place)
        return {use: found[use] for use in wanted}

    def members(self, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
        """Whether each (kind, owner, name) is there."""
        return dict(zip(wanted, self.ask("members", wanted, set()).get("found", ()), strict=False))

    def conditions(
        self, wanted: set[tuple[str, str]], places: set[tuple[str, int]]
    ) -> dict[tuple[str, str], bool | None]:
        """Whether each (module, condition) holds there; None where more than the module decides. Imports at these places are made good."""
        tests = sorted(wanted)
        found = self.ask("conditions", tests, places).get("found", ())
        return dict(zip(tests, found, strict=False))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)


def imports_of(verl: Path) -> Iterator[tuple[Path, int, str, str]]:
    """Every import of vLLM in a verl tree, at any depth: file, line, module, name ("" for a whole module)."""
    for file in sorted(verl.rglob("*.py")):
        source = file.read_bytes()
        if b"vllm" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and not node.level and _is_vllm(node.module or ""):
                for alias in node.names:
                    if alias.name != "*":
                        yield file, alias.lineno, node.module or "", alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if _is_vllm(alias.name):
                        yield file, alias.lineno, alias.name, ""


def _is_vllm(module: str) -> bool:
    return module == "vllm" or module.startswith("vllm.")


if __name__ == "__main__":
    sys.exit("run bench_pairs.py")
