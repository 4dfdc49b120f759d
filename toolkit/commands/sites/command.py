"""`verl-doctor sites`: this cluster's paths in the configuration, not in a hand-edited Python file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from verl_doctor.toolkit.change import NewFile, ReplaceFile
from verl_doctor.toolkit.changes import apply, links, safe_write
from verl_doctor.toolkit.changes.difference import unified
from verl_doctor.toolkit.commands.sites.answer import SitesAnswer
from verl_doctor.toolkit.commands.sites.edit import CannotWriteError, with_sites
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.config import Config, load
from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.helpful_group import HelpfulGroup
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.sources.python.site_paths import NO_PATH, Setting, settings_in
from verl_doctor.toolkit.system.sites import is_placeholder
from verl_doctor.toolkit.target import Options, UsageError, journal_home
from verl_doctor.toolkit.text import counted, harmless

_OWN = "verl-doctor.toml"
_IN_PYPROJECT = ("tool", "verl-doctor")


@click.group(cls=HelpfulGroup)
def sites() -> None:
    """This cluster's paths: import them from a Python file."""


@sites.command(
    "import",
    epilog="Exit codes: 0 everything is imported, 1 something must be set by hand, 2 FILE cannot be used.",
)
@click.argument("file", type=PATH, metavar="FILE")
@click.option("--apply", "apply_them", is_flag=True, help="Write the configuration; undo reverts it.")
@shared_option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="The output format.",
)
def import_sites(*, file: Path, apply_them: bool, form: str) -> int:
    """Import paths from a Python file into the configuration.

    FILE holds lines such as MODEL = "/models/qwen" and is read, never run. The change is shown as a diff;
    --apply writes it. They go into an existing [tool.verl-doctor.sites], or else into a verl-doctor.toml
    here.
    """
    machine = Machine()
    found = settings_in(machine.cwd / file)
    config = load(machine.cwd)
    named = Path(config.path or machine.cwd / _OWN)
    place = Path(os.path.realpath(named))
    taken = dict(_taken(found, config))
    if not any(setting.path is not None for setting in found):
        raise UsageError(f'{file} contains no paths; expected lines such as MODEL = "/models/qwen"')
    change = _change(place, taken, () if named.name == _OWN else _IN_PYPROJECT) if taken else None
    if change is not None and apply_them:
        _write(change, machine)
    left = [(setting, why) for setting in found if (why := _left(setting, config))]
    to_do = any(_is_to_do(setting, config) for setting in found)
    code = show(SitesAnswer(place, taken, left, _diff(change), to_do, apply_them), form, None)
    if form == "text":
        for setting, why in left:
            print(harmless(f"{file}:{setting.line}: {setting.name} {why}"), file=sys.stderr)
        _summary(place, change, len(taken), apply_them=apply_them)
    return code


def _diff(change: ReplaceFile | NewFile | None) -> str:
    if change is None:
        return ""
    before, after = (
        (change.before, change.after) if isinstance(change, ReplaceFile) else (b"", change.content)
    )
    return "".join(unified(before, after, (f"a{change.path}", f"b{change.path}")))


def _taken(found: Iterable[Setting], config: Config) -> Iterable[tuple[str, str]]:
    """The paths that are new or differ. A path that is set is not replaced by an example's."""
    configured = {site.name: site.path for site in config.sites}
    for setting in found:
        if setting.path is not None and configured.get(setting.name) != setting.path:
            if is_placeholder(setting.path) and not is_placeholder(configured.get(setting.name, "")):
                continue
            yield setting.name, setting.path


def _change(place: Path, taken: dict[str, str], below: tuple[str, ...]) -> ReplaceFile | NewFile:
    try:
        before = safe_write.read(place)
        if before is None:
            return NewFile(place, with_sites("", taken).encode())
        return ReplaceFile(place, before, with_sites(before.decode("utf-8"), taken, below=below).encode())
    except (CannotWriteError, apply.Refused, OSError) as reason:
        raise UsageError(f"{place} is not changed: {reason}") from None


def _write(change: ReplaceFile | NewFile, machine: Machine) -> None:
    home = journal_home(discover(Options(), machine), links.places([change]))
    try:
        apply.apply([change], home, fix="sites import", code="sites")
    except apply.Refused as error:
        raise UsageError(str(error)) from None


def _is_to_do(setting: Setting, config: Config) -> bool:
    """Whether it must be set by hand."""
    configured = {site.name: site.path for site in config.sites}
    if not is_placeholder(configured.get(setting.name, "")):
        return False
    return setting.why not in ("", NO_PATH) if setting.path is None else is_placeholder(setting.path)


def _left(setting: Setting, config: Config) -> str:
    """Why a line is not taken unchanged, "" if it is."""
    if setting.path is None:
        return f"is skipped: {setting.why}"
    if not is_placeholder(setting.path):
        return ""
    is_set = any(site.name == setting.name and not is_placeholder(site.path) for site in config.sites)
    return "is not set in it" + ("; what is configured stays" if is_set else " yet")


def _summary(place: Path, change: ReplaceFile | NewFile | None, number: int, *, apply_them: bool) -> None:
    if change is None:
        sentence = f"{place} already has all of them"
    elif apply_them:
        sentence = f"{counted(number, 'path')} written to {place}; verl-doctor undo reverts it"
    else:
        sentence = f"{counted(number, 'path')} would be written to {place}; run again with --apply"
    print(harmless(sentence), file=sys.stderr)


__all__ = ["sites"]
