"""What `fix` makes of launch scripts that will fail: healed by safe repairs, by unsafe ones, not healed, made worse.

    python tests/bench/bench_heal.py [--rows FILE...] [--later FILE...] [--environments FILE...] [--write tests/bench/HEAL.md]

The cases lie in `tests/verdict`, their classes in `tests/verdict/heal.toml`. `--rows` are files that `tests/verdict/heal.py --record` wrote;
without them all cases are healed anew. `--later` are such files of the sets that were added later: with these alone their section is written
anew. `--environments` are files that `tests/verdict/environments.py --record` wrote. With these alone the section on
environments is written anew and the rest of the page is kept; without them that section is kept.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from verdict import case as cases_of
from verdict import environments
from verdict.heal import NOT_JUDGED, Healed, classes, healed, recorded
from verdict.score import share

_FOLDERS = re.compile(r"/tmp/v[^/\s]*/|/\S*/site-packages/|/\S*/\.pyenv/")
_AT_FIRST = (
    "At the first attempt 98 of 117 healable ones were healed; the rules grew for the others. All cases were tried again on 28 November 2026, with "
    "commits c1b4da75 and 1f37b812; a script that was healed into the same one as earlier that day was not constructed a second time. Four are left. "
    "`equals_in_a_path` gets its quotes, and the model's folder does not exist in this case. `gae`, `critic_without_micro_batch` and "
    "`critic_of_another_folder` train a critic, for which verl's loader of value models must be repaired too: no fix of launch scripts does that. "
    "`fix --apply` in a copy of the environment makes three repairs for `critic_without_micro_batch`, and construction passes. `lora_rank_1024` is "
    "healed, and fails in this environment as every job with an adapter does: verl 0.9.1 calls `WeightsMapper.get_unstacked_mapper`, which vLLM 0.31.0 "
    "does not have."
)
_LATER = "## Sets that were added later"
_LATER_AT_FIRST = (
    "The sets `faults_10` to `faults_14`, 251 cases of users' reports, habits, first jobs, keys and parts; `check` foretells 214 of them at once. "
    "At the first attempt, on 30 November 2026, 78 of the 156 healable ones among these were healed (50 %), 23 by safe repairs, none of the 58 others, "
    "and 2 were made worse: a critic was switched on, for which verl's code needs a repair too. Then 16 more rules got corrections, and 12 others further ones; lines that "
    "set variables, launchers, folders on PYTHONPATH, quotes and exports became repairable; and a chain of edits that ends at another fault is "
    "undone. The 78 that were not healed, and those that cannot be, were tried again afterwards; the rows of the other 78 are those of the first attempt. "
    "`parts_reward_beside_its_helper` died in its run without an exception in its log, while ten other processes kept two cores busy; the same script "
    "trained when it was run again. `keys_reward_in_the_home` names a file in a home that `heal.py` has removed by the time of the construction. "
    "An edit that helps only together with a later one counts as repaired since the same day, and `keys_trainer_mode_async` is left: `sync` is "
    "the opposite, and the other two may both be meant."
)
_ENVIRONMENTS = "## Environments"
_NEAREST = "## The nearest configuration that construction accepts"  # written by hand from what bench_nearest.py prints
_ENVIRONMENTS_AT_FIRST = (
    "At the first attempt 13 of 16 healable ones were healed; then three things changed: requirements of an engine that goes no longer count, what pip "
    "had moved away and left is cleared, and the fix is offered for an engine that a command line chooses. Of 14 healable ones that were added later "
    "11 were healed when they were first tried; by then emptied files and YAML files counted as lost ones, for which `emptied_file` had been the reason. "
    "`engine_uninstalled` needed a job "
    "that asks for the engine, and a rule that had not applied before no longer counts as made worse. `torchvision_missing` is left: for models "
    "of text a missing torchvision was measured to do no harm. All were measured again on 28 November 2026 with c1b4da75."
)
_PRINTED = 150  # characters of what is printed in place of a repair


def main() -> None:
    parser = argparse.ArgumentParser(description="the heal rate")
    parser.add_argument("--rows", type=Path, nargs="+", default=[])
    parser.add_argument("--later", type=Path, nargs="+", default=[])
    parser.add_argument("--environments", type=Path, nargs="+", default=[])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    page = options.write.read_text(encoding="utf-8") if options.write and options.write.exists() else ""
    _, kept, nearest = page.partition(f"\n{_NEAREST}\n")
    if options.later:
        before, heading, after = page.partition(f"\n{_ENVIRONMENTS}\n")
        section = "\n".join(_later(recorded(options.later)))
        print(section)
        if options.write:
            text = f"{before.partition(_LATER)[0].rstrip()}\n\n{section}\n{heading}{after}"
            options.write.write_text(text, encoding="utf-8")
        return
    if options.environments and not options.rows:
        section = "\n".join(_environments(environments.recorded(options.environments))) + "\n"
        section += kept + nearest
        print(section)
        if options.write:
            before = page.partition(f"\n{_ENVIRONMENTS}\n")[0].rstrip("\n")
            options.write.write_text(f"{before}\n\n{section}", encoding="utf-8")
        return
    known = classes()
    rows = recorded(options.rows) or list(healed([*known.healable, *known.not_healable]))
    text = "\n".join(_measured(rows)) + "\n"
    _, later, section = page.partition(f"\n{_ENVIRONMENTS}\n")[0].partition(f"\n{_LATER}\n")
    text += later + section
    if options.environments:
        text += (
            "\n"
            + "\n".join(_environments(environments.recorded(options.environments)))
            + "\n"
            + kept
            + nearest
        )
    else:
        _, heading, section = page.partition(f"\n{_ENVIRONMENTS}\n")
        text += heading + section
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")


def _measured(rows: Sequence[Healed]) -> Iterable[str]:
    yield "# Heal rate"
    yield ""
    yield (
        "Cases of `tests/verdict` that `check` says will fail, with the rules that read and run nothing; each was classed before the first attempt "
        "(`tests/verdict/heal.toml`). Tried: `fix --apply`, then `fix --apply --unsafe`, with the fixes of launch scripts alone. "
        "Healed means that `check` finds no fault afterwards. `construction` is what verl's own code makes of the healed script "
        "(`heal.py --construct`), `run` what happened when it was run (`heal.py --run`); both are empty where that was not tried."
    )
    yield ""
    yield _AT_FIRST
    yield ""
    yield from _tables(rows)


def _later(rows: Sequence[Healed]) -> Iterable[str]:
    yield _LATER
    yield ""
    yield _LATER_AT_FIRST
    yield ""
    yield from (line.replace("## ", "### ") if line.startswith("## ") else line for line in _tables(rows))


def _tables(rows: Sequence[Healed]) -> Iterable[str]:
    known, cases = classes(), cases_of.cases()
    healable = [row for row in rows if row.case not in known.not_healable]
    others = [row for row in rows if row.case in known.not_healable]
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
    built = [row.built == "passes" for row in rows if row.built and not row.built.startswith(NOT_JUDGED)]
    unjudged = sum(row.built.startswith(NOT_JUDGED) for row in rows)
    ran = [row.ran.startswith("trained") for row in rows if row.ran]
    offered = [row for row in healable if row.offered]
    yield f"| healable, a fix was offered: healed | {sum(bool(row.by) for row in offered)} | {share(bool(row.by) for row in offered)} |"
    yield f"| healed and constructed: construction passes | {sum(built)} | {share(built)} |"
    yield f"| healed, and the sound job cannot be constructed in this environment either | {unjudged} | none |"
    yield f"| healed and run: trained | {sum(ran)} | {share(ran)} |"
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
    yield "| case | what is wrong | by | repairs | construction | run |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        if row.by:
            repairs = _plain("; ".join(dict.fromkeys(row.repairs)))
            yield f"| {row.case} | {cases[row.case].why} | {row.by} | {repairs} | {_plain(row.built)} | {_plain(row.ran)} |"


def _environments(rows: Sequence[environments.Outcome]) -> Iterable[str]:
    known = environments.cases()
    healable = [row for row in rows if not known[row.case].not_healable]
    offered = [row for row in healable if row.offered]
    yield _ENVIRONMENTS
    yield ""
    yield (
        "Environments of small wheels that are named and described as the real ones, broken as pip and uv break them; each has its class and a repair "
        "that is known to work (`tests/verdict/environments.toml`), written down before the first attempt. Tried: `fix --apply --unsafe`, with the "
        "real pip and a folder of wheels as its index. Healed means: the copy has no finding that the sound environment has not, everything in it can "
        "be imported, and `pip check` is content. The environment itself must be as it was, byte for byte."
    )
    yield ""
    yield _ENVIRONMENTS_AT_FIRST
    yield ""
    yield "| | cases | share |"
    yield "|---|---|---|"
    yield f"| healable: healed | {sum(row.healed for row in healable)} | {share(row.healed for row in healable)} |"
    yield f"| healable, a fix was offered: healed | {sum(row.healed for row in offered)} | {share(row.healed for row in offered)} |"
    yield f"| the environment itself was changed | {sum(not row.untouched for row in rows)} | {share(not row.untouched for row in rows)} |"
    yield ""
    yield "| case | what is wrong | outcome | printed |"
    yield "|---|---|---|---|"
    for row in sorted(rows, key=lambda row: list(known).index(row.case)):
        outcome = (
            "healed"
            if row.healed
            else f"not healable: {known[row.case].not_healable}"
            if known[row.case].not_healable
            else "not healed"
        )
        yield f"| {row.case} | {known[row.case].why} | {outcome} | {_plain(row.printed)[:_PRINTED].removesuffix(': ')} |"


def _plain(text: str) -> str:
    """A cell of a table, without the folders of this run."""
    return _FOLDERS.sub("", text).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
