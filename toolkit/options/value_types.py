"""The kinds of values that options take: paths, codes, durations, sizes and named trees."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.options import completing, hints
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.system.silent_path import why_silent
from verl_doctor.toolkit.target import LIBRARIES

ELSEWHERE: Final = "remount it, or name a copy elsewhere"
"""The next step where a path does not respond."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = "3650d"
_DURATION = re.compile(r"(\d{1,9})([smhd])")
_BARE = re.compile(r"\d{1,9}(?:\.\d+)?")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

TREES = ("vllm", *LIBRARIES)
OTHER_TREES = ("--tree", *(f"--{name}" for name in TREES))
"""The options for trees that need not be installed; commands that start something cannot use them."""


class NamedPath(click.Path):
    """A path that responds.

    An empty one, as from an unset shell variable, does not mean the current folder.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reject an empty path, and one that does not respond."""
        if value == "" and ctx is not None and ctx.resilient_parsing:
            return super().convert(value, param, ctx)
        if value == "":
            self.fail("it is empty; is a variable unset?", param, ctx)
        if why := why_silent(os.fspath(value)):
            self.fail(f"{value}: {why}; {ELSEWHERE}", param, ctx)
        return super().convert(value, param, ctx)


class FileToWrite(NamedPath):
    """A file that a command writes at its end; an unwritable one is rejected before anything is examined.

    An existing file is replaced only if it is of this `kind`, or `force_option` is given.
    """

    def __init__(self, kind: output.Kind | None = None) -> None:
        super().__init__(path_type=Path)
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reject a folder, and a new file that cannot be created."""
        path = super().convert(value, param, ctx)
        if os.path.isdir(path):
            self.fail(f"{path} is a folder; name a file in it", param, ctx)
        if not os.path.exists(path) and (why := output.why_not_new(path)):
            self.fail(f"{path} cannot be written: {why}; name another file", param, ctx)
        if self._kind is not None and not (ctx is not None and ctx.meta.get(_FORCE)):
            output.refuse_others(path, self._kind)
        return path


PATH = NamedPath(path_type=Path)
FILE_TO_WRITE = FileToWrite()
_FORCE = f"{__name__}.force"


def _keep_force(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_FORCE] = value


force_option = shared_option(
    "--force",
    is_flag=True,
    is_eager=True,  # known before file names are validated
    expose_value=False,
    callback=_keep_force,
    help="Overwrite FILE even if verl-doctor did not write it.",
)
"""Goes with a `FileToWrite` of some kind."""


class Codes(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """Rule codes or families, separated by commas."""

    name = "codes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split at the commas."""
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip().upper() for word in value.split(",") if word.strip())
        return words or self.fail("it does not name a rule; for instance VLLM or PKG101,PY", param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete codes and families."""
        return completing.rules_behind_commas(incomplete)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """A number of seconds, minutes, hours or days: 30m.

    With `bare`, numbers without a unit are seconds, as in 0.1.0.
    """

    name = "duration"

    def __init__(self, least: str = "0s", most: str = _LONGEST, *, bare: bool = False) -> None:
        self._least = least
        self._most = most
        self._bare = bare

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to seconds. Reject values outside the limits."""
        if isinstance(value, float):  # a default, or already converted
            return value
        text = str(value)
        if self._bare and _BARE.fullmatch(text):
            hints.replaced(text, f"{text}s")
            text = f"{float(text):.0f}s"
        seconds = _seconds(text)
        if seconds is None:
            self.fail(f"'{value}' is not a duration; for instance 5s, 30m, 12h or 2d", param, ctx)
        if seconds < (_seconds(self._least) or 0):
            self.fail(f"{value} is too short; the minimum is {self._least}", param, ctx)
        if seconds > (_seconds(self._most) or 0):
            self.fail(f"{value} is too long; the maximum is {self._most}", param, ctx)
        return seconds


def _seconds(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    return float(int(found[1]) * _UNITS[found[2]]) if found else None


def in_units(seconds: float) -> str:
    """Return a duration in the format of the option: "90s", "30m"."""
    return f"{seconds / 60:.0f}m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:.0f}s"


class Size(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """An amount of bytes in binary units: 40G."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert to bytes."""
        found = _SIZE.fullmatch(str(value).strip())
        if not found:
            self.fail(f"'{value}' is not a size; for instance 500M, 40G or 1.5T", param, ctx)
        size = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))
        return size or self.fail("the size is zero; for instance 500M, 40G or 1.5T", param, ctx)


class NamedTree(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """A package and the folder of its sources: vllm=DIR."""

    name = "tree"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path]:
        """Split at the first `=`."""
        if isinstance(value, tuple):
            return value[0], value[1]
        package, equals, folder = str(value).partition("=")
        if not equals or package not in TREES:
            self.fail(f"'{value}' is not NAME=DIR, where NAME is one of {', '.join(TREES)}", param, ctx)
        return package, PATH.convert(folder, param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the name; the shell completes the folder."""
        return [CompletionItem(f"{name}=") for name in TREES if f"{name}=".startswith(incomplete)]
