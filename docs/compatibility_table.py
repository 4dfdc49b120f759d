"""Judge every verl from 0.4.0 with every vLLM from 0.8.5, and write docs/compatibility.json.

    python docs/compatibility_table.py

Run it when a release has appeared. The sources come from the package index, and verdicts that this version of
the doctor has given before come from its cache. `site_pages/releases.py` makes the pages. The last line
printed is what the run has cost.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from packaging.version import Version

from verl_doctor.toolkit.commands.matrix.judge import Break
from verl_doctor.toolkit.commands.matrix.matrix import Row, Study
from verl_doctor.toolkit.commands.matrix.releases import Release
from verl_doctor.toolkit.commands.matrix.request import Callbacks, Request, study_for
from verl_doctor.toolkit.machine import Machine

DATA = Path(__file__).parent / "compatibility.json"
LARGEST = 1_000_000
"""Bytes that the data may have."""

_OLDEST = {"verl": Version("0.4.0"), "vllm": Version("0.8.5")}
# Packages of which only one release can be installed, and on which both sides depend.
_DECIDING = ("ray", "tensordict", "torch", "transformers")

T = TypeVar("T")


class Shared(list[T]):
    """Values that many pairs have in common, each once."""

    def place(self, value: T) -> int:
        """The position of a value, which is added when it is new."""
        if value not in self:
            self.append(value)
        return self.index(value)


def table(study: Study) -> dict[str, Any]:
    """Judge all pairs."""
    verls, vllms = (_stable(study, project) for project in ("verl", "vllm"))
    findings: Shared[dict[str, Any]] = Shared()
    exclusions: Shared[str] = Shared()
    pairs: dict[str, dict[str, Any]] = {}
    for verl in verls:
        rows = study.rows("vllm", study.side(verl), vllms)
        pairs[str(verl.version)] = {row.version: _pair(row, findings, exclusions) for row in rows}
        print(f"verl {verl.version}: {len(vllms)} releases of vLLM judged", file=sys.stderr, flush=True)
    return {
        "made": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "verl": [str(release.version) for release in verls],
        "vllm": [str(release.version) for release in vllms],
        "findings": findings,
        "exclusions": exclusions,
        "pairs": pairs,
    }


def _stable(study: Study, project: str) -> list[Release]:
    return [
        release
        for release in study.offered(project)[0]
        if release.version >= _OLDEST[project] and not release.version.is_prerelease
    ]


def _pair(row: Row, findings: Shared[dict[str, Any]], exclusions: Shared[str]) -> dict[str, Any]:
    if row.verdict is None:
        return {"paths": {}, "reason": row.unread}
    stopping = sorted(row.verdict.stopping, key=lambda found: found.phase != "import")
    clashes = [str(clash) for clash in row.clashes if clash.about in _DECIDING]
    return {
        "paths": {path.path: path.state for path in row.verdict.paths},
        "reason": row.verdict.reason,
        "stops": [findings.place(_finding(row, found)) for found in stopping],
        "may_stop": [findings.place(_finding(row, found)) for found in row.verdict.optional],
        "excluded": [exclusions.place(text) for text in (*clashes, *map(str, row.pins))],
    }


def _finding(row: Row, found: Break) -> dict[str, Any]:
    return {
        "code": found.code,
        "message": found.message.replace(f" {row.version}", ""),
        "places": list(found.places),
        "paths": list(found.stops or found.may_stop),
        "phase": found.phase,
        "remedy": found.remedy.replace(f" {row.version}", ""),
        "fix": found.fix,
    }


def main() -> int:
    """Write the data."""
    began = time.monotonic()
    study = study_for(Request(python=Path(sys.executable)), Machine(), Callbacks())
    try:
        made = table(study)
    finally:
        study.index.close()
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":")).replace('},"', '},\n"') + "\n"
    if len(text.encode()) > LARGEST:
        print(f"{len(text.encode())} bytes are more than {LARGEST}: not written", file=sys.stderr)
        return 1
    DATA.write_text(text, "utf-8")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(part.ru_utime + part.ru_stime for part in used)
    print(
        f"{len(made['verl'])} x {len(made['vllm'])} pairs, {len(text.encode()) // 1000} kB, "
        f"{time.monotonic() - began:.0f} s, {cpu:.0f} CPU s on {os.cpu_count()} cores"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
