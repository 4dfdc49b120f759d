"""Forecasts of `check`, and causes that `logs` names, beside what really happened to launch scripts that were run.

    python tests/bench/bench_verdict.py FORECASTS [--write tests/bench/VERDICT.md]
    python tests/bench/bench_verdict.py --logs-only [--write tests/bench/VERDICT.md]

FORECASTS is the file that `tests/verdict/forecast.py` has filled. The cases lie in `tests/verdict`. A figure for cases by somebody who had not seen the rules stands apart, and so does what was reported
before anything was changed for a case.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from verdict import case as cases_of
from verdict.forecast import Forecast, Way, forecasts
from verdict.score import Row, diagnosed, is_phase, logs, share

_CURRENT = "0.9.1"
_LOGS = "## Logs"


def main() -> None:
    parser = argparse.ArgumentParser(description="the scoreboard of verdicts")
    parser.add_argument("forecasts", type=Path, nargs="?")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--logs-only", action="store_true", help="measure the last section alone")
    options = parser.parse_args()
    if not options.logs_only and options.forecasts is None:
        parser.error("FORECASTS is needed: tests/verdict/forecast.py fills it")
    text = "\n".join(_read_logs()) + "\n" if options.logs_only else _measured(options.forecasts)
    print(text)
    if options.write:
        before = options.write.read_text("utf-8").partition(_LOGS)[0] if options.logs_only else ""
        options.write.write_text(before + text, encoding="utf-8")


def _measured(file: Path) -> str:
    kept = forecasts(file)
    ways: tuple[Way, ...] = ("at once", "construction")
    before, *now = _first(), *(_rows(kept, way) for way in ways)
    if not now[0] or not now[1]:
        sys.exit(f"{file} is not whole: it has {len(now[0])} and {len(now[1])} cases")
    whole = now[0]
    columns = [_current(rows) for rows in (before, *now)]
    return "\n".join(
        [
            "# Verdict against reality",
            "",
            *_what_was_run(whole),
            "",
            "## Foretold",
            "",
            *_table(columns),
            "",
            *_constructed(*map(len, now)),
            *_seconds(kept, whole),
            "",
            *_older(now),
            "",
            "## Missed",
            "",
            *_missed(*columns[1:]),
            "",
            "## False alarms",
            "",
            *_false_alarms(now),
            "",
            *_read_logs(),
            "",
        ]
    )


def _current(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.case.base.group == _CURRENT]


def _first() -> list[Row]:
    known, real = cases_of.cases(), cases_of.real()
    return [
        Row(known[name], real[name], one.verdict == "failures", one.codes, one.phases)
        for name, one in cases_of.first().items()
        if name in real and real[name].outcome != "undecided"
    ]


def _rows(kept: Mapping[tuple[str, str], Forecast], way: Way) -> list[Row]:
    known = cases_of.cases()
    return [
        Row(known[name], real, one.verdict == "failures", one.codes, one.phases, one.seconds)
        for name, real in cases_of.real().items()
        if real.outcome != "undecided" and (one := kept.get((name, way))) is not None
    ]


def _what_was_run(rows: Sequence[Row]) -> Iterable[str]:
    places = Counter(
        (
            row.case.base.device,
            ", ".join(f"{name} {version}" for name, version in row.case.base.releases.items()),
        )
        for row in rows
    )
    yield f"{len(rows)} launch scripts were run: {sum(row.failed for row in rows)} died or hung, {sum(not row.failed for row in rows)} trained."
    yield ""
    yield "| machine | releases | scripts |"
    yield "|---|---|---|"
    for (device, releases), count in sorted(places.items()):
        yield f"| {device} | {releases} | {count} |"


def _table(columns: Sequence[Sequence[Row]]) -> Iterable[str]:
    yield "| | at once, before anything was changed for a case | at once, today | by construction (`--deep`), today |"
    yield "|---|---|---|---|"
    kinds = [
        ("failures whose cause is in script, files, packages or configuration", lambda row: row.counts),
        ("... by an author who had not seen the rules", lambda row: row.counts and row.case.blind),
        ("... by the author of the rules", lambda row: row.counts and not row.case.blind),
        *((f"... in the {cause}", lambda row, cause=cause: row.counts and row.case.cause == cause) for cause in ("script", "files", "packages", "configuration")),
    ]  # fmt: skip
    for title, belongs in kinds:
        cells = [share(row.fails for row in rows if belongs(row)) for rows in columns]
        yield f"| {title} | {' | '.join(cells)} |"
    cells = [share(row.phase_is_right for row in rows if row.counts and row.fails) for rows in columns]
    yield f"| phase right, of those foretold | {' | '.join(cells)} |"
    cells = [share(row.is_false_alarm for row in rows if not row.failed) for rows in columns]
    yield f"| false alarms among jobs that trained | {' | '.join(cells)} |"
    yield ""
    yield (
        "What a rehearsal (`smoke --cpu`) foretells is not measured case by case: jobs of `cpu` are run as a rehearsal runs them, "
        "and CI rehearses some. Jobs of an H200 are constructed with the vLLM of the environment for processors."
    )


def _constructed(at_once: int, built: int) -> Iterable[str]:
    """How many cases the column about the construction is about, where it is not all of them."""
    if built < at_once:
        yield f"Of the {at_once} cases, {built} were constructed for this table; the last column is about these alone."
        yield ""


def _seconds(kept: Mapping[tuple[str, str], Forecast], rows: Sequence[Row]) -> Iterable[str]:
    at_once = median(forecast.seconds for forecast in kept.values() if forecast.way == "at once")
    built = [forecast for forecast in kept.values() if forecast.way == "construction"]
    shared = [forecast.seconds for forecast in built if not forecast.alone]
    alone = [forecast.seconds for forecast in built if forecast.alone and not forecast.unbuilt]
    yield (
        f"A verdict at once took {at_once:.2f} s of a processor (median, sources read before). A construction took {median(shared):.1f} s "
        f"of the clock of a busy machine where the imports are shared by several jobs ({len(shared)}), and {median(alone):.1f} s with imports "
        f"of its own ({len(alone)}). The failures took {median(row.real.seconds for row in rows if row.failed):.0f} s of the clock, the "
        f"healthy jobs {median(row.real.seconds for row in rows if not row.failed):.0f} s."
    )


def _older(ways: Sequence[Sequence[Row]]) -> Iterable[str]:
    groups = sorted({row.case.base.group for row in ways[0]} - {_CURRENT})
    if groups:
        yield "Older releases, today:"
        yield ""
        yield "| verl | failures foretold at once | by construction |"
        yield "|---|---|---|"
        for group in groups:
            cells = [
                share(row.fails for row in rows if row.counts and row.case.base.group == group)
                for rows in ways
            ]
            yield f"| {group} | {' | '.join(cells)} |"


def _missed(at_once: Sequence[Row], built: Sequence[Row]) -> Iterable[str]:
    yield "| case | what is wrong | what happened | phase | missed |"
    yield "|---|---|---|---|---|"
    by_construction = {row.case.name for row in built if row.counts and not row.fails}
    for row in at_once:
        if row.counts and (not row.fails or row.case.name in by_construction):
            words = (
                f"{row.real.raised}: {row.real.text}".strip(": ").replace("|", "/")[:110] or row.real.outcome
            )
            missed = "by both" if row.case.name in by_construction else "at once"
            yield f"| {row.case.name} | {row.case.why} | {words} | {row.real.phase} | {missed} |"


def _false_alarms(ways: Sequence[Sequence[Row]]) -> Iterable[str]:
    found = {row.case.name: row for rows in ways for row in rows if row.is_false_alarm}
    for row in found.values():
        yield f"* {row.case.name} ({row.case.why}): {' '.join(row.codes)}"
    if not found:
        yield "none"


def _read_logs() -> Iterable[str]:
    """The section about logs, which needs no forecast."""
    read = {name: diagnosed(text) for name, text in logs().items()}
    failed = {
        name: real
        for name, real in cases_of.real().items()
        if name in read and real.outcome in {"died", "hung"}
    }
    yield _LOGS
    yield ""
    right = {name: read[name].is_right(real) for name, real in failed.items()}
    phases = [is_phase(read[name].phase, real.phase) for name, real in failed.items()]
    apart = [name in sorted(read)[2::3] for name in failed]
    yield f"First cause right: {share(right.values())}. Phase right: {share(phases)}."
    yield ""
    yield (
        "Every third log by name was looked at last, when the others were read rightly; of these today: "
        f"first cause {share(compress(right.values(), apart))}, phase {share(compress(phases, apart))}."
    )
    yield ""
    yield "| not right | what was raised first | what was named |"
    yield "|---|---|---|"
    for name, real in failed.items():
        if not right[name]:
            named = (
                f"{read[name].code} {read[name].words.splitlines()[0][:80]}"
                if read[name].words
                else "nothing"
            )
            yield f"| {name} | {real.raised}: {real.text[:80]} | {named} |".replace("\n", " ")


if __name__ == "__main__":
    main()
