"""What is not as it was where the job ran: what breaks and what matters is shown, noise is folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.compare import Difference
from verl_doctor.toolkit.page import Block, Fold, Rank, Said, Section, Table
from verl_doctor.toolkit.report_seen import Seen
from verl_doctor.toolkit.text import counted

_NONE = "-"


def sections(seen: Seen) -> Iterator[Section]:
    """Nothing when nobody asked for a comparison."""
    compared = seen.compared
    if compared is None:
        return
    told = [one for one in compared.differences if one.weight != "noise"]
    noise = [one for one in compared.differences if one.weight == "noise"]
    when = f", taken {compared.taken}" if compared.taken else ""
    said = (
        f"{counted(len(told), 'difference')} from {compared.what}{when}"
        if told
        else f"As in {compared.what}{when}"
    )
    blocks: list[Block] = [Said(f"{said}.")]
    blocks += [_table(told)] if told else []
    blocks += (
        [Fold(f"{counted(len(noise), 'difference')} that should not matter", (_table(noise),))]
        if noise
        else []
    )
    yield Section("What differs from where it worked", tuple(blocks), Rank.FINDINGS)


def _table(differences: Iterable[Difference]) -> Table:
    rows = tuple(
        (
            one.weight,
            f"{one.kind}: {one.subject}",
            one.old or _NONE,
            one.new or _NONE,
            "; ".join(filter(None, (one.nodes, one.why, one.next))),
        )
        for one in differences
    )
    return Table(("weight", "what", "was", "is", "where and why"), rows)
