"""A sample answer of each command with several output formats, and its exit code."""

from __future__ import annotations

from pathlib import Path

from support.report_seen import seen
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun, SmokeRung
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.commands.actors.answer import ActorsAnswer
from verl_doctor.toolkit.commands.actors.placement import Placement
from verl_doctor.toolkit.commands.check.answer import EachAnswer
from verl_doctor.toolkit.commands.checklist.answer import ChecklistAnswer
from verl_doctor.toolkit.commands.checklist.checklist import Checklist, Step
from verl_doctor.toolkit.commands.clean.answer import CleanAnswer
from verl_doctor.toolkit.commands.clean.clean import Cleaned, Found
from verl_doctor.toolkit.commands.compare.answer import ComparisonAnswer
from verl_doctor.toolkit.commands.environment.answer import EnvironmentAnswer
from verl_doctor.toolkit.commands.guard.answer import GuardAnswer
from verl_doctor.toolkit.commands.guard.guard import Term
from verl_doctor.toolkit.commands.logs.answer import LogsAnswer
from verl_doctor.toolkit.commands.matrix.answer import UpgradeAnswer
from verl_doctor.toolkit.commands.report import view as page_view
from verl_doctor.toolkit.commands.sites.answer import SitesAnswer
from verl_doctor.toolkit.commands.smoke.answer import SmokeAnswer
from verl_doctor.toolkit.commands.snapshot.answer import SnapshotAnswer
from verl_doctor.toolkit.commands.warmup.answer import WarmupAnswer
from verl_doctor.toolkit.commands.warmup.warmup import Warmup
from verl_doctor.toolkit.commands.watch.answer import WatchAnswer
from verl_doctor.toolkit.commands.watch.forecast import Forecast
from verl_doctor.toolkit.commands.watch.metrics import Gauge
from verl_doctor.toolkit.comparison.judge import Comparison
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.logs.answer import Answer as Diagnosis
from verl_doctor.toolkit.logs.diagnosis import Reading
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render.render import ReportAnswer
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.snapshot.snapshot import Snapshot

GIB = 1 << 30
REPORT = seen().report

ANSWERS: dict[str, tuple[Answer, int]] = {
    "actors": (ActorsAnswer(Placement()), 3),
    "check": (ReportAnswer(REPORT, 3), 3),
    "check --each": (EachAnswer(REPORT, 1), 1),
    "checklist": (ChecklistAnswer(Checklist((Step("key", "A step", "open"),), REPORT)), 1),
    "clean": (CleanAnswer(Cleaned(Found())), 0),
    "compare": (ComparisonAnswer(Comparison(Snapshot({}), Snapshot({}), ())), 0),
    "environment": (EnvironmentAnswer(EffectiveEnvironment()), 0),
    "guard": (GuardAnswer((Term("Python", "fail", "3.11"),), "", {}), 1),
    "logs": (LogsAnswer(Diagnosis(Reading((), None, (), (), (), 0), ("a.log",), 0)), 3),
    "matrix": (UpgradeAnswer(None), 0),
    "report": (page_view.make(seen(), Machine(environ={}), masked=True), seen().report.exit_code()),
    "sites": (SitesAnswer(Path("a.toml"), {}, (), "", to_do=True, applied=False), 1),
    "smoke": (SmokeAnswer(SmokeRun("cpu", "--cpu", ()), REPORT), 1),
    "snapshot": (SnapshotAnswer(Snapshot({}), Report({}, ()), Path("kept.json"), 10), 0),
    "warmup": (WarmupAnswer(Warmup()), Warmup().exit_code()),
    "watch": (WatchAnswer((), 1, 0.0, 60.0), 0),
}

_FULL = Forecast(
    Gauge("/tmp/ray (spilling)", 180 * GIB, 190 * GIB, "bytes", "Ray stops spilling"), 45 << 20, 227.0
)
_CALM = Forecast(Gauge("memory", 50 * GIB, 190 * GIB, "bytes", "Ray ends workers"), -1000.0)
_SHORT = Forecast(Gauge("memory", 50 * GIB, 190 * GIB, "bytes", "Ray ends workers"), too_short=True)
_STEPS = (
    Step("tree", "The tree is copied whole", "done", ("one tree of verl 0.6.1",)),
    Step(
        "packages",
        "The packages are those of the old cluster",
        "failed",
        ("vllm 0.11.0 -> 0.12.0",),
        "verl-doctor fix",
    ),
    Step(
        "debug",
        "A DEBUG run logs its first step",
        "open",
        ("no launch script is named",),
        "verl-doctor checklist run.sh",
    ),
)
_RUNGS = (
    SmokeRung(1, "imports and files", "passed", seconds=2.0),
    SmokeRung(
        2,
        "devices",
        "failed",
        seconds=1.0,
        cause="cuInit: 999",
        code="SMOKE103",
        remedy="load the driver's modules",
    ),
    SmokeRung(3, "Ray", "not reached", cause="rung 2 failed"),
)

SAMPLES: dict[str, Answer] = {
    "check": ReportAnswer(REPORT, 3),
    "checklist": ChecklistAnswer(Checklist(_STEPS, REPORT)),
    "clean": CleanAnswer(Cleaned(Found())),
    "matrix --next": UpgradeAnswer(None),
    "report --format text": page_view.make(seen(), Machine(environ={}), masked=True),
    "smoke": SmokeAnswer(SmokeRun("cuda", "this machine has NVIDIA GPUs", _RUNGS), REPORT),
    "snapshot": SnapshotAnswer(Snapshot({}), REPORT, Path("kept.json"), 10),
    "warmup": WarmupAnswer(Warmup()),
    "watch (fills)": WatchAnswer((_FULL, _CALM), 30, 150.0, 86_400.0),
    "watch (calm)": WatchAnswer((_CALM,), 30, 150.0, 86_400.0),
    "watch (short)": WatchAnswer((_SHORT,), 6, 12.0, 86_400.0),
}
"""Answers of commands that look at the machine itself, as a page of samples shows them."""
