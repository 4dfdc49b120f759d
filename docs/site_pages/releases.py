"""The table of releases of verl and vLLM, and a page for each verl with what was found of each cell.

The data is `docs/compatibility.json`, which `docs/compatibility_table.py` writes, findings in the order in
which they strike. Releases with the same findings share a section, so that the site has a page for each verl
and not for each pair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "compatibility.json"
STATES = {"starts": "starts", "import": "import", "start": "engine", "unknown": "unknown"}
"""What a cell shows for how far a path gets."""
_FAILS = {
    "starts": "starts",
    "import": "fails while modules are imported",
    "start": "fails when the engine starts",
    "unknown": "not judged",
}
_MOST_PLACES = 6
_MARKUP = re.compile(r"[\\`*_\[\]<>|#]")


def pages() -> dict[str, str]:
    """The table and the page of each verl, by path."""
    data = json.loads(DATA.read_text("utf-8"))
    of_verl = {f"releases/verl-{verl}.md": "\n".join([*_of_verl(data, verl), ""]) for verl in data["verl"]}
    return {"releases/index.md": "\n".join([*_table(data), ""]), **of_verl}


def anchor(verl: str, vllm: str) -> str:
    """The anchor of the findings of a pair."""
    return f"verl-{verl}-vllm-{vllm}".replace(".", "-")


def cell(pair: Mapping[str, Any]) -> str:
    """How far each path of a pair gets.

    An asterisk: all start, but the declared requirements do not agree.
    """
    states = pair["paths"]
    if not states:
        return "unknown"
    if len(set(states.values())) == 1:
        text = STATES[next(iter(states.values()))]
    else:
        text = ", ".join(
            f"{path.partition(' ')[0]} {STATES[state]}" for path, state in sorted(states.items())
        )
    return f"{text}\\*" if text == "starts" and pair.get("excluded") else text


def _table(data: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "# verl with vLLM, release by release",
        "",
        (
            f"Made on {data['made']} from the sources of {len(data['verl'])} releases of verl and "
            f"{len(data['vllm'])} of vLLM,"
        ),
        "with verl's default settings. Nothing was installed or run.",
        "",
        "| cell | a job |",
        "|---|---|",
        "| starts | starts, and what both releases require can be installed together |",
        (
            r"| starts\* | starts, but verl or vLLM requires another release of the other, "
            "or of a package that both need |"
        ),
        "| import | fails while verl's modules are imported |",
        "| engine | fails when the engine starts |",
        "| unknown | could not be judged from the sources |",
        "",
        (
            "If the synchronous and the asynchronous rollout differ, the cell shows both. Each cell links "
            "to the findings, with the line of verl,"
        ),
        (
            "the remedy, and the breaks that only some settings reach. `verl-doctor matrix` judges your own "
            "tree in the same way, and"
        ),
        "`verl-doctor check run.sh` judges it with the settings of your script.",
        "",
        f"| vLLM | {' | '.join(f'[verl {verl}](verl-{verl}.md)' for verl in data['verl'])} |",
        "|---|" + "---|" * len(data["verl"]),
    )
    for vllm in reversed(data["vllm"]):
        cells = (f"[{cell(data['pairs'][verl][vllm])}](#{anchor(verl, vllm)})" for verl in data["verl"])
        yield f"| {vllm} | {' | '.join(cells)} |"
    names = "\n".join(f"verl-{verl}" for verl in data["verl"])
    yield from ("", "```{toctree}", ":hidden:", "", names, "```")


def _of_verl(data: Mapping[str, Any], verl: str) -> Iterator[str]:
    pairs = data["pairs"][verl]
    yield from (
        f"# verl {verl} with each vLLM",
        "",
        (
            f"Made on {data['made']} from the sources of both, with verl's default settings. [All "
            "releases](index.md)"
        ),
        "",
    )
    for _, run in groupby(data["vllm"], key=lambda vllm: json.dumps(pairs[vllm])):
        releases = list(run)
        yield from (f"({anchor(verl, vllm)})=" for vllm in releases)
        yield from (
            f"## vLLM {releases[0]}" + (f" to {releases[-1]}" if len(releases) > 1 else ""),
            "",
            *_sections(data, pairs[releases[0]]),
        )


def _sections(data: Mapping[str, Any], pair: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"* {path}: {_FAILS[state]}" for path, state in sorted(pair["paths"].items()))
    if pair["reason"]:
        yield f"* {_plain(pair['reason'])}"
    yield ""
    for title, key in (
        ("Stops every job on its path", "stops"),
        ("Stops jobs with some settings", "may_stop"),
    ):
        if pair.get(key):
            yield from (f"{title}:", "")
            yield from (_finding(data["findings"][place]) for place in pair[key])
            yield ""
    if pair.get("excluded"):
        yield from ("Requirements that exclude each other:", "")
        yield from (f"* {_plain(data['exclusions'][place])}" for place in pair["excluded"])
        yield ""


def _finding(found: Mapping[str, Any]) -> str:
    places = [f"`{place}`" for place in found["places"][:_MOST_PLACES]]
    rest = len(found["places"]) - len(places)
    where = ", ".join([*places, *([f"{rest} more"] if rest else [])])
    helps = f"`verl-doctor fix` repairs it ({found['fix']})" if found["fix"] else _plain(found["remedy"])
    paths = " and ".join(found["paths"])
    return (
        f"* [{found['code']}](../rules/{found['code']}.md), {paths}: {_plain(found['message'])}. {where}. "
        f"{helps}"
    )


def _plain(text: str) -> str:
    """Text of which nothing is taken for markup."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
