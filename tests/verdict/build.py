"""Make the folder of a case: its script, its data, its model, and the files that it needs."""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from support import rehearsal_environment, wheels
from verdict.case import Case

from verl_doctor.toolkit.commands.smoke.rehearsal.job import put_in_place, variables

# Statements about the rows of tables, under the interpreter that reads them.
_TABLES = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
for source, place, statements in json.load(sys.stdin):
    scope = {"rows": pq.read_table(source).to_pylist()}
    exec(statements, scope)
    rows = scope["rows"]
    if place.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), place)
    else:
        text = "".join(json.dumps(row) + chr(10) for row in rows)
        open(place, "w").write(text)
"""


class Builder:
    """Builds cases below a folder. `python` has pyarrow and verl; tiny data and models are made once for each kind."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        self.tiny = functools.cache(self._tiny)

    def build(self, case: Case) -> Path:
        """Make the folder of a case anew and return its script."""
        tiny = self.tiny(case.kind, case.rows, case.shape)
        job = self.folder / case.name
        shutil.rmtree(job, ignore_errors=True)
        job.mkdir(parents=True)
        placed = _Places(case, tiny, job)
        for name, text in case.files.items():
            (job / name).parent.mkdir(parents=True, exist_ok=True)
            (job / name).write_text(placed(text), encoding="utf-8")
        self._model(case, tiny, job)
        self._tables(case, tiny, job)
        script = job / "run.sh"
        script.write_text(_script(case, placed), encoding="utf-8")
        return script

    def _tiny(self, kind: str, rows: int, shape: str) -> Path:
        folder = self.folder / "tiny" / f"{kind}{rows}{shape}"
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "verl_doctor.toolkit", "tiny", str(folder), "--kind", kind]
            command += ["--rows", str(rows), "--python", str(self.python)]
            command += ["--model-shape", shape] if shape else []
            subprocess.run(command, check=True, capture_output=True)
        return folder

    def _model(self, case: Case, tiny: Path, job: Path) -> None:
        if not case.model:
            return
        model = job / "model"
        shutil.copytree(tiny / "model", model)
        for name, change in case.model.items():
            file = model / name
            if not change:
                file.unlink()
            elif change.startswith("="):
                file.write_text(change[1:], encoding="utf-8")
            else:
                scope = {"j": json.loads(file.read_text(encoding="utf-8"))}
                exec(change, scope)
                file.write_text(json.dumps(scope["j"]), encoding="utf-8")

    def _tables(self, case: Case, tiny: Path, job: Path) -> None:
        jobs = []
        for name, statements in case.data.items():
            source = tiny / name if (tiny / name).exists() else tiny / "train.parquet"
            jobs.append((str(source), str(job / name), statements))
        if jobs:
            subprocess.run([self.python, "-c", _TABLES], input=json.dumps(jobs), text=True, check=True)


class _Places:
    """Puts paths in place of `<model>`, `<train>` and the like."""

    def __init__(self, case: Case, tiny: Path, job: Path) -> None:
        tables = {name: job / name if name in case.data else tiny / name for name in _NAMES}
        self.places = {
            "model": job / "model" if case.model else tiny / "model",
            "job": job,
            "tiny": tiny,
            **{name.partition(".")[0]: at for name, at in tables.items()},
        }

    def __call__(self, text: str) -> str:
        for name, place in self.places.items():
            text = text.replace(f"<{name}>", str(place))
        return text


def _script(case: Case, placed: _Places) -> str:
    settings = {key: value for key, value in case.base.settings.items() if key not in case.drop} | dict(
        case.set
    )
    lines = [
        "#!/bin/bash",
        "set -x",
        *(f'export {name}="{placed(value)}"' for name, value in case.env.items()),
    ]
    words = [f"  {_quoted(f'{key}={placed(value)}')} \\" for key, value in settings.items()]
    text = "\n".join([*lines, f"{case.base.program} \\", *words, '  "$@"', ""])
    for old, new in case.edit:
        assert placed(old) in text, f"{case.name}: the script has no {old}"
        text = text.replace(placed(old), placed(new))
    return text


_NAMES = ("train.parquet", "validation.parquet", "sft_train.parquet", "sft_validation.parquet")


def _quoted(word: str) -> str:
    """Quote as people do: the value only, and nothing where it is not needed."""
    key, _, value = word.partition("=")
    return word if "$" in value else f"{key}={shlex.quote(value)}" if value else word


def environ(case: Case, python: Path, private: Path) -> dict[str, str]:
    """The variables of the shell in which a case is run and judged: its home and what Ray writes lie in `private`."""
    found = {name: os.environ[name] for name in ("LANG", "USER") if name in os.environ}
    found["PATH"] = f"{python.parent}:{os.environ['PATH']}"
    if case.base.group != "0.9.1":
        found["PYTHONPATH"] = str(wheels.tree("verl", case.base.releases["verl"]))
    if case.base.device == "cpu" and case.base.group.startswith("0.9."):
        given = variables(put_in_place(private, on_cpu=True), found, on_cpu=True)
        found |= {name: value for name, value in given.items() if value}
    for name in ("home", "ray"):
        (private / name).mkdir()
    found |= {"HOME": str(private / "home"), "RAY_TMPDIR": str(private / "ray")}
    return found | rehearsal_environment.variables() | {"PYTHONUNBUFFERED": "1", "HYDRA_FULL_ERROR": "1"}
