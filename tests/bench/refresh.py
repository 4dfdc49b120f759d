"""Makes anew what is shipped about releases of verl and vLLM; run it when one has appeared.

    python tests/bench/refresh.py

The sources come from the package index that pip is configured for. Written are `toolkit/data/verl_keys.json`, the history of verl's
keys, and `docs/compatibility.json`, the table of all pairs. `bench_day_zero.py` measures what the doctor knew before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import verl_keys

from verl_doctor.toolkit.commands.matrix.request import Callbacks, Request, study_for
from verl_doctor.toolkit.machine import Machine

ROOT = Path(__file__).parents[2]
_KEYS = ROOT / "toolkit/data/verl_keys.json"


def main() -> int:
    """Write both."""
    study = study_for(Request(python=Path(sys.executable)), Machine(), Callbacks())
    try:
        stable = (release for release in study.offered("verl")[0] if not release.version.is_prerelease)
        wanted = [release for release in stable if release.version >= verl_keys.OLDEST]
        trees = {str(release.version): Path(study.side(release).tree.folder) for release in wanted}
    finally:
        study.index.close()
    _KEYS.write_text(json.dumps(verl_keys.table(trees), indent=1) + "\n", "utf-8")
    print(f"{_KEYS.relative_to(ROOT)}: {wanted[0].version} to {wanted[-1].version}")
    return subprocess.run([sys.executable, str(ROOT / "docs/compatibility_table.py")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
