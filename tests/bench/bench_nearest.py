"""The nearest settings that construction accepts, for scripts that fail in a way that no rule corrects (`nearest.toml`).

    python tests/bench/bench_nearest.py FILE [CASE...]

Cases of tests/verdict may be named too. What FILE has already is left as it is; the table of all that it has is printed at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from verdict import case as cases_of
from verdict.case import Case, tomllib
from verdict.predict import Predictor

from verl_doctor.toolkit.collectors.construction.accepted import Accepted
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.hydra.written import as_written

_CASES = Path(__file__).with_name("nearest.toml")
_HEAD = ("case", "what is wrong", "a person would", "at once", "found", "tried", "s", "s of check --deep")


def cases() -> Iterator[tuple[Case, str]]:
    """The cases with the repair that a person would make."""
    base = cases_of.bases()["grpo"]
    for name, table in tomllib.loads(_CASES.read_text("utf-8")).items():
        repair = table.pop("repair")
        yield Case(name=name, base=base, cause="script", **table), repair or "edit another file"


def measured(predictor: Predictor, case: Case, repair: str) -> Mapping[str, Any]:
    """What was found for a case, and how long it took."""
    with predictor.prepared(case) as one:
        codes = " ".join(one.judged().codes)
        begun = time.monotonic()
        built = one.look.get(Construction)
        half = time.monotonic()
        found = one.look.get(Accepted)
        end = time.monotonic()
    answer, tried = _answer(found)
    if isinstance(built, Unknown):
        answer = built.reason
    seconds = {"s": round(end - half), "s of check --deep": round(half - begun)}
    more = {"what is wrong": case.why, "a person would": repair, "at once": codes}
    return {"case": case.name, **more, "found": answer, "tried": tried, **seconds}


def _answer(found: Accepted | Unknown) -> tuple[str, int]:
    if isinstance(found, Unknown):
        return found.reason, 0
    edits = [
        f"{setting.key} left out" if setting.left_out else f"{setting.key}={as_written(setting.value)}"
        for setting in found.settings
    ]
    return "; ".join(edits) or "nothing", found.tried


def main() -> None:
    parser = argparse.ArgumentParser(description="the nearest settings that construction accepts")
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*", metavar="CASE")
    options = parser.parse_args()
    own = {case.name: (case, repair) for case, repair in cases()}
    known = {name: (case, "") for name, case in cases_of.cases().items()}
    rows = (
        [json.loads(line) for line in options.file.read_text("utf-8").splitlines()]
        if options.file.exists()
        else []
    )
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        predictor = Predictor(Path(folder))
        for name in options.names or own:
            if name not in {row["case"] for row in rows}:
                rows.append(measured(predictor, *{**known, **own}[name]))
                with options.file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}")
    for row in rows:
        print(f"| {' | '.join(str(row[name]) for name in _HEAD)} |")


if __name__ == "__main__":
    main()
