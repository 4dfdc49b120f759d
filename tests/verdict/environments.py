"""Environments broken as in `environments.toml`, made of small wheels, and what `fix --apply --unsafe` makes of them.

    python tests/verdict/environments.py [--keep FOLDER] [CASE...]

Healed means: the copy that `fix` made is judged as the sound environment is, every package in it can be imported, and `pip check` finds
nothing that it does not find in the sound one. The environment itself must be as it was, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.index_server import installable
from verdict.case import HERE, tomllib

CASES = HERE / "environments.toml"
_MODULES = {
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "hydra-core": "hydra",
    "TransferQueue": "transfer_queue",
}
_CHECKOUT = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
"""For the doctor alone: where another checkout than the installed one is tried."""
_REFUSAL = """
import vllm
from packaging import version as vs
package_version = vllm.__version__
if vs.parse(package_version) < vs.parse("0.18.0"):
    raise ValueError(f"vllm version {package_version} not supported. Currently supported vllm versions are 0.18.0+")
"""
_MAIN = """
import hydra


@hydra.main(config_path="config", config_name="ppo_trainer")
def main(config):
    pass
"""
_CONFIG = """
actor_rollout_ref:
  rollout:
    name: vllm
    mode: async
trainer:
  nnodes: 1
  n_gpus_per_node: 1
"""
_MORE: Mapping[str, Mapping[str, str]] = {
    "verl": {
        "verl/trainer/__init__.py": "",
        "verl/trainer/main_ppo.py": _MAIN,
        "verl/trainer/config/ppo_trainer.yaml": _CONFIG,
        "verl/workers/rollout/sglang_rollout/__init__.py": "",
        "verl/workers/rollout/sglang_rollout/sglang_rollout.py": "import sglang\n",
        "verl/third_party/__init__.py": "",
        "verl/third_party/vllm/__init__.py": _REFUSAL,
        "verl/workers/__init__.py": "",
        "verl/workers/rollout/__init__.py": "",
        "verl/workers/rollout/vllm_rollout/__init__.py": "from verl.third_party import vllm as checked\n",
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py": "import vllm\n",
    },
    "torch": {"torch/nn/__init__.py": "", "torch/nn/functional.py": "def relu(x):\n    return x\n"},
}


@dataclass(frozen=True)
class Broken:
    """One case of the file."""

    name: str
    why: str
    steps: tuple[Mapping[str, Any], ...]
    repair: tuple[str, ...] = ()
    made_by: str = "venv"
    words: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    not_healable: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a case: whether a fix was offered, what was printed for it, and the faults that are left in the copy."""

    case: str
    offered: bool
    healed: bool
    untouched: bool
    printed: str
    left: tuple[str, ...] = ()
    seconds: float = 0.0


def document() -> dict[str, Any]:
    return dict(tomllib.loads(CASES.read_text(encoding="utf-8")))


def cases() -> dict[str, Broken]:
    found = {}
    for name, table in document()["case"].items():
        lists = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        found[name] = Broken(name, **lists)
    return found


def wheels() -> dict[str, tuple[str, bytes]]:
    """All wheels of the index, by "name version"."""
    return {title: _wheel(title, requires) for title, requires in document()["wheels"].items()}


def _wheel(title: str, requires: Sequence[str]) -> tuple[str, bytes]:
    name, _, version = title.partition(" ")
    module = _MODULES.get(name, name.replace("-", "_"))
    texts, extras = [], {}
    for line in requires:
        extra, colon, rest = line.partition(": ")
        texts.append(f'{rest} ; extra == "{extra}"' if colon else line)
        if colon:
            extras[extra] = None
    files = {f"{module}/__init__.py": f'__version__ = "{version}"\n', **_MORE.get(name, {})}
    if name == "transformers":
        files[f"transformers/only_in_{version.replace('.', '_')}.py"] = ""
    return installable(name, version, files, texts, extras)


class Builder:
    """Makes environments below a folder, all from one folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built = wheels()
        self.index = folder / "index"
        self.index.mkdir(parents=True)
        for name, content in self.built.values():
            (self.index / name).write_bytes(content)

    def environ(self) -> dict[str, str]:
        """The variables with which pip and uv see these wheels and nothing else."""
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "UV_", "VIRTUAL_ENV", "PYTHONPATH"))
        }
        return {
            **plain,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_CONFIG_FILE": os.devnull,
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.index),
            "UV_NO_CONFIG": "1",
            "HOME": str(self.folder),
        }

    def sound(self, name: str, *, made_by: str = "venv") -> Path:
        """An environment without a fault."""
        prefix = self.folder / name
        _run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], self.environ())
        if made_by == "uv":
            with (prefix / "pyvenv.cfg").open("a") as file:
                file.write("uv = 0.9.0\n")
        self.pip(prefix, "install", *document()["sound"]["install"])
        return prefix

    def build(self, case: Broken) -> Path:
        """An environment with this fault."""
        prefix = self.sound(case.name, made_by=case.made_by)
        for step in case.steps:
            ((kind, value),) = step.items()
            getattr(self, f"_{kind}")(prefix, value)
        for title in case.gone:
            (self.index / self.built[title][0]).unlink()
        return prefix

    def give_back(self, case: Broken) -> None:
        """Put the wheels back that were gone for a case."""
        for title in case.gone:
            (self.index / self.built[title][0]).write_bytes(self.built[title][1])

    def pip(self, prefix: Path, *words: str) -> None:
        _run(
            [sys.executable, "-m", "pip", "--python", str(prefix / "bin/python"), *words, "-q"],
            self.environ(),
        )

    def _install(self, prefix: Path, pins: Sequence[str]) -> None:
        self.pip(prefix, "install", "--no-deps", *pins)

    def _uninstall(self, prefix: Path, names: Sequence[str]) -> None:
        self.pip(prefix, "uninstall", "-y", *names)

    def _unpack(self, prefix: Path, pins: Sequence[str]) -> None:
        """As an installer leaves it that was ended before it removed the old release."""
        for pin in pins:
            with zipfile.ZipFile(self.index / self.built[pin.replace("==", " ")][0]) as archive:
                archive.extractall(site(prefix))

    def _rename(self, prefix: Path, pairs: Sequence[Sequence[str]]) -> None:
        for old, new in pairs:
            (site(prefix) / old).rename(site(prefix) / new)

    def _delete(self, prefix: Path, paths: Sequence[str]) -> None:
        for path in paths:
            place = site(prefix) / path
            _run(["rm", "-r", str(place)], {})

    def _empty(self, prefix: Path, paths: Sequence[str]) -> None:
        for path in paths:
            (site(prefix) / path).write_bytes(b"")

    def _editable(self, prefix: Path, version: str) -> None:
        """As `pip install -e` leaves it beside a wheel that it could not remove."""
        checkout = prefix.with_name(f"{prefix.name}-checkout")
        for path, text in {"verl/__init__.py": f'__version__ = "{version}"\n', **_MORE["verl"]}.items():
            (checkout / path).parent.mkdir(parents=True, exist_ok=True)
            (checkout / path).write_text(text)
        metadata = site(prefix) / f"verl-{version}.dist-info"
        metadata.mkdir()
        old = next(site(prefix).glob("verl-0.9.1.dist-info")) / "METADATA"
        (metadata / "METADATA").write_text(old.read_text().replace("Version: 0.9.1", f"Version: {version}"))
        (metadata / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        (metadata / "INSTALLER").write_text("pip\n")
        url = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
        (metadata / "direct_url.json").write_text(json.dumps(url))
        pth = f"__editable__.verl-{version}.pth"
        (site(prefix) / pth).write_text(f"{checkout}\n")
        names = [
            f"{metadata.name}/{name}"
            for name in ("METADATA", "WHEEL", "INSTALLER", "direct_url.json", "RECORD")
        ]
        (metadata / "RECORD").write_text("".join(f"{name},,\n" for name in (pth, *names)))


def site(prefix: Path) -> Path:
    return next(prefix.glob("lib/python*/site-packages"))


def fix(builder: Builder, prefix: Path, *words: str, case: Broken | None = None) -> dict[str, Any]:
    """What `verl-doctor fix` answers about an environment, as JSON."""
    command = [sys.executable, "-m", "verl_doctor.toolkit", "fix", "--python", str(prefix), "--json", *words]
    if case is not None and case.words:
        command += ["--", "python3", "-m", "verl.trainer.main_ppo", *case.words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=builder.folder,
        env={**builder.environ(), **_CHECKOUT},
    )
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"{shortened(command)}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def faults(builder: Builder, prefix: Path, answer: Mapping[str, Any]) -> set[str]:
    """What is wrong with an environment: what the rules find, what cannot be imported, and what pip finds. Without its name."""
    found = {
        f"{result['code']} {finding['message']}"
        for result in answer["results"]
        if result["code"][:2] in {"PK", "PY", "VL", "CU", "RA", "CF"}
        for finding in result["findings"]
        if finding["severity"] != "info"
    }
    checked = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(prefix / "bin/python"), "check"],
        capture_output=True, text=True, check=False, env=builder.environ(),
    )  # fmt: skip
    found |= {f"pip: {line}" for line in checked.stdout.splitlines() if line and "No broken" not in line}
    modules = sorted({_MODULES.get(t.split()[0], t.split()[0].replace("-", "_")) for t in builder.built})
    program = "import importlib.util, sys\nfor name in sys.argv[1:]:\n    if importlib.util.find_spec(name): __import__(name)"
    imported = subprocess.run(
        [str(prefix / "bin/python"), "-B", "-c", program, *modules],
        capture_output=True,
        text=True,
        check=False,
        env=builder.environ(),
        cwd=builder.folder,
    )
    found |= {f"import: {line}" for line in imported.stderr.splitlines()[-1:]}
    return {re.sub(rf"{re.escape(str(builder.folder))}/[\w-]+", "ENV", text) for text in found}


def digest(prefix: Path) -> str:
    """All of an environment, without the doctor's journal."""
    total = hashlib.sha256()
    for path in sorted(prefix.rglob("*")):
        if ".verl-doctor" in path.parts:
            continue
        total.update(str(path.relative_to(prefix)).encode())
        total.update(
            bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        )
    return total.hexdigest()


def healed(names: Iterable[str], folder: Path) -> Iterator[Outcome]:
    """What becomes of these cases."""
    builder = Builder(folder)
    base = builder.sound("sound-environment")
    allowed = faults(builder, base, fix(builder, base))
    for case in (cases()[name] for name in names):
        prefix = builder.build(case)
        before = digest(prefix)
        planned = fix(builder, prefix, case=case)
        found = faults(builder, prefix, planned) - allowed
        offered = any(repair["outcome"] == "planned" for repair in planned["repairs"])
        answer = fix(builder, prefix, "--apply", "--unsafe", case=case)
        builder.give_back(case)
        copies = [
            change["copy"] for repair in answer["repairs"] for change in repair["changes"]
            if repair["outcome"] == "repaired" and change["kind"] == "install_packages"
        ]  # fmt: skip
        judged = Path(copies[-1]) if copies else prefix
        left = faults(builder, judged, answer) - allowed
        printed = "; ".join(
            f"{repair['code']} {repair['outcome']}: {repair['reason']}" for repair in answer["repairs"]
        )
        yield Outcome(
            case.name,
            offered,
            bool(found) and not left,
            digest(prefix) == before,
            printed,
            tuple(sorted(left)),
            answer["seconds"],
        )


def recorded(files: Iterable[Path]) -> list[Outcome]:
    """What `--record` wrote; of a case that was tried again the last."""
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return list({row["case"]: Outcome(**{**row, "left": tuple(row["left"])}) for row in rows}.values())


def _run(command: Sequence[str], environ: Mapping[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})
    if done.returncode:
        raise RuntimeError(f"{shortened(command)}: {done.stderr[-2000:]}")


def shortened(command: Sequence[str]) -> str:
    return " ".join(command)[:300]


def main() -> None:
    parser = argparse.ArgumentParser(description="what fix makes of broken environments")
    parser.add_argument("names", nargs="*", metavar="CASE", help="all without any")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="make the environments there and leave them"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write what became of each as a line of JSON"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        for row in healed(options.names or cases(), options.keep or Path(folder)):
            print(
                f"{row.case}: {'healed' if row.healed else 'NOT HEALED'}{'' if row.untouched else ' TOUCHED'}",
                flush=True,
            )
            print(f"    {row.printed}", flush=True)
            for line in row.left:
                print(f"    left: {line}", flush=True)
            if options.record:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")


if __name__ == "__main__":
    main()
