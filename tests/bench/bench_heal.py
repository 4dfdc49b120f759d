"""What `fix` makes of launch scripts that will fail: healed by safe repairs, by unsafe ones, not healed, made worse.

    python tests/bench/bench_heal.py [--rows FILE...] [--write tests/bench/HEAL.md]

The cases lie in `tests/verdict`, their classes in `tests/verdict/heal.toml`. `--rows` are files that `tests/verdict/heal.py --record` wrote;
without them all cases are healed anew.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from verdict import case as cases_of
from verdict.heal import Healed, classes, healed, recorded
from verdict.score import share

_FOLDERS = re.compile(r"/tmp/v[^/\s]*/|/\S*/site-packages/|/\S*/\.pyenv/")
_AT_FIRST = "At the first attempt 98 of 117 healable ones were healed; the rules grew for 7 of the others."
_PRINTED = 150  # characters of what is printed in place of a repair


def main() -> None:
    parser = argparse.ArgumentParser(description="the heal rate")
    parser.add_argument("--rows", type=Path, nargs="+", default=[])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    known = classes()
    rows = recorded(options.rows) or list(healed([*known.healable, *known.not_healable]))
    text = "\n".join(_measured(rows)) + "\n"
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")


def _measured(rows: Sequence[Healed]) -> Iterable[str]:
    known, cases = classes(), cases_of.cases()
    healable = [row for row in rows if row.case not in known.not_healable]
    others = [row for row in rows if row.case in known.not_healable]
    yield "# Heal rate"
    yield ""
    yield (
        "Cases of `tests/verdict` that `check` says will fail, with the rules that read and run nothing; each was classed before the first attempt "
        "(`tests/verdict/heal.toml`). Tried: `fix --apply`, then `fix --apply --unsafe`, with the fixes of launch scripts alone. "
        "Healed means that `check` finds no fault afterwards; the jobs were not run again."
    )
    yield ""
    yield _AT_FIRST
    yield ""
    yield "| | cases | share |"
    yield "|---|---|---|"
    for title, holds in (
        ("healed by safe repairs", lambda row: row.by == "safe"),
        ("healed by unsafe repairs", lambda row: row.by == "unsafe"),
        ("healed", lambda row: bool(row.by)),
        ("made worse: a rule that passed finds errors now", lambda row: bool(row.worse)),
    ):
        for name, part in (("healable", healable), ("not healable", others)):
            yield f"| {name}: {title} | {sum(map(holds, part))} | {share(map(holds, part))} |"
    offered = [row for row in healable if row.offered]
    yield f"| healable, a fix was offered: healed | {sum(bool(row.by) for row in offered)} | {share(bool(row.by) for row in offered)} |"
    yield ""
    yield "## Healable and not healed"
    yield ""
    yield "| case | what is wrong | known repair | printed instead |"
    yield "|---|---|---|---|"
    for row in healable:
        if not row.by:
            left = _FOLDERS.sub("", "; ".join(row.left))[:_PRINTED]
            yield f"| {row.case} | {cases[row.case].why} | {known.healable.get(row.case, '')} | {_plain(left)} |"
    yield ""
    yield "## Healed"
    yield ""
    yield "| case | what is wrong | by | repairs |"
    yield "|---|---|---|---|"
    for row in rows:
        if row.by:
            yield f"| {row.case} | {cases[row.case].why} | {row.by} | {_plain('; '.join(dict.fromkeys(row.repairs)))} |"


def _plain(text: str) -> str:
    """A cell of a table, without the folders of this run."""
    return _FOLDERS.sub("", text).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
