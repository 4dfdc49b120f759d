"""What a plan shows on stderr while an installer looks for agreeing versions, which may take minutes."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import FactReference, Need
from verl_doctor.toolkit.render.result_words import headline
from verl_doctor.toolkit.repair.forecast import with_best_fixes
from verl_doctor.toolkit.repair.plan import fixable
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.text import listed

_SOON = 3.0  # seconds
_CODES = 12


def show_before_packages(
    session: Session, collection: Collection, report: Report, progress: Progress
) -> None:
    """Print the findings and the search, unless no fix needs it or the installer answers soon."""
    report = with_best_fixes(session, collection, report)
    waiting = dict.fromkeys(
        result.code for result, _, fix in fixable(session, report) if _needs_packages(fix.needs)
    )
    if not waiting or session.offline or collection.is_soon(Resolution, _SOON):
        return
    for line in _lines(report):
        progress.done(line)
    limit = f"{session.installer_limit.seconds:.0f} s"
    what = f"for packages that agree ({listed(list(waiting), _CODES)})"
    progress.done(f"looking {what}, for at most {limit}; the plan follows")
    progress.show(f"looking {what}, for at most {limit}")


def _lines(report: Report) -> Iterator[str]:
    yield "  ".join(headline(report))
    for result, finding in report.findings():
        if finding.severity == "error":
            yield f"  {result.code} {finding.message}"


def _needs_packages(needs: tuple[Need, ...]) -> bool:
    return any(need.reference == FactReference.of(Resolution) for need in needs)
