"""Options that several commands share, each group handed to the command as one value."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from verl_doctor.toolkit.cluster.node_request import BUDGET, VIA, RequestedNodes, Via
from verl_doctor.toolkit.collectors.packages.installer_limit import APPLY, PLAN
from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.formats import FORMATS, HEADLINE
from verl_doctor.toolkit.options import completing, hints
from verl_doctor.toolkit.system.silent_path import why_silent
from verl_doctor.toolkit.target import LIBRARIES, Options, UsageError

Command = Callable[..., Any]

_ELSEWHERE = "remount it, or name a copy elsewhere"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = "3650d"
_DURATION = re.compile(r"(\d{1,9})([smhd])")
_BARE = re.compile(r"\d{1,9}(?:\.\d+)?")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.:-]*")


_TREES = ("vllm", *LIBRARIES)
OTHER_TREES = ("--tree", *(f"--{name}" for name in _TREES))
"""The options for trees that need not be installed; commands that start something cannot use them."""

ANSWER_FORMATS = ("text", "json", "markdown")
"""The output formats of every command."""


class SharedOption(click.Option):
    """An option that many commands have: their help lists it after their own."""


shared_option = functools.partial(click.option, cls=SharedOption)
"""Declare an option of several commands."""


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
            self.fail(f"{value}: {why}; {_ELSEWHERE}", param, ctx)
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
        if not equals or package not in _TREES:
            self.fail(f"'{value}' is not NAME=DIR, where NAME is one of {', '.join(_TREES)}", param, ctx)
        return package, PATH.convert(folder, param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the name; the shell completes the folder."""
        return [CompletionItem(f"{name}=") for name in _TREES if f"{name}=".startswith(incomplete)]


@dataclass(frozen=True)
class Rules:
    """Which rules to run, and whether to run slow ones."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    deep: bool = False


@dataclass(frozen=True)
class View:
    """How to show a report, and where."""

    form: str = "text"
    output: Path | None = None
    verbose: bool = False


def target_options(command: Command) -> Command:
    """Options that name what is examined; the command gets `options`."""

    @shared_option(
        "--python",
        type=PATH,
        metavar="PATH",
        help="The interpreter to examine, or the folder of its environment.",
    )
    @shared_option(
        "--verl", type=PATH, metavar="DIR", help="The verl tree: a checkout or the package folder."
    )
    @shared_option(
        "--tree",
        "trees",
        type=NamedTree(),
        multiple=True,
        metavar="NAME=DIR",
        help=(
            f"Use this source tree of {', '.join(_TREES[:-1])} or {_TREES[-1]}, installed or not. May be "
            "repeated."
        ),
    )
    @functools.wraps(command)
    def with_options(
        *, python: Path | None, verl: Path | None, trees: tuple[tuple[str, Path], ...], **others: Any
    ) -> Any:
        old = [(name, tree) for name in _TREES if (tree := others.pop(name)) is not None]
        for name, tree in old:
            hints.replaced(f"--{name} {tree}", f"--tree {name}={tree}")
        named = dict([*old, *trees])
        libraries = tuple((name, named[name]) for name in LIBRARIES if name in named)
        return command(options=Options(python, verl, named.get("vllm"), libraries), **others)

    for name in reversed(_TREES):
        with_options = click.option(f"--{name}", type=PATH, hidden=True)(with_options)
    return with_options


def job_options(command: Command) -> Command:
    """The launch script or command of the job, added to the `options` of `target_options`.

    `target_options` must be applied after this.
    """
    launch = click.argument(
        "launch",
        nargs=-1,
        metavar="[LAUNCH_SCRIPT | -- COMMAND...]",
        shell_complete=completing.complete_files,
    )
    return launch(_job(command))


def script_options(command: Command) -> Command:
    """Add the same for a command with other arguments: the launch script is an option."""
    script = click.option(
        "--script",
        "launch",
        multiple=True,
        metavar="FILE",
        shell_complete=completing.complete_files,
        help="The script that starts the job; may be repeated.",
    )
    return script(_job(command))


def _job(command: Command) -> Command:
    @shared_option("--model", type=PATH, metavar="DIR", help="The model's folder.")
    @shared_option("--data", type=PATH, metavar="FILE", multiple=True, help="A data file; may be repeated.")
    @shared_option(
        "--ray-address",
        default="",
        metavar="HOST:PORT",
        help="Examine the Ray cluster whose head (GCS) has this address.",
    )
    @functools.wraps(command)
    def with_job(
        *,
        options: Options,
        launch: tuple[str, ...],
        model: Path | None,
        data: tuple[Path, ...],
        ray_address: str,
        **others: Any,
    ) -> Any:
        for word in launch:
            if why := why_silent(word):
                raise UsageError(f"{word}: {why}; {_ELSEWHERE}")
        named = replace(
            options,
            launch=launch,
            model=model,
            data=data,
            ray_address=ray_address,
        )
        return command(options=named, **others)

    return with_job


def refuses(*options: str, why: str) -> Callable[[click.Command], click.Command]:
    """Disable shared options that have no effect in this command.

    The help of the command omits them, and using one is an error with the reason.
    """

    def refused(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
        if option.name and ctx.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{option.opts[0]}: {why}")
        return value

    def taken_back(command: click.Command) -> click.Command:
        for option in command.params:
            if isinstance(option, click.Option) and option.opts[0] in options:
                option.hidden, option.callback = True, refused
        return command

    return taken_back


def node_options(command: Command) -> Command:
    """Options that name other nodes; the command gets `nodes`, None if there are none."""
    return node_options_within(BUDGET)(command)


def repair_options(command: Command) -> Command:
    """Add the same with a `budget` that also limits the installers, None for their usual time."""
    return _node_options(BUDGET, command, for_installers=True)


def node_options_within(default_budget: float) -> Callable[[Command], Command]:
    """Add the same with a default for the seconds that nodes have."""
    return functools.partial(_node_options, default_budget)


def _node_options(default_budget: float, command: Command, *, for_installers: bool = False) -> Command:
    waiting = f"How long to wait for the nodes: 30s, 5m.  [default: {in_units(default_budget)}]"
    if for_installers:
        waiting = (
            "How long to wait for the nodes, and for an installer that resolves packages: 30s, 5m.  "
            f"[default: nodes {in_units(default_budget)}; installer {in_units(PLAN)}, with --apply "
            f"{in_units(APPLY)}]"
        )

    @shared_option(
        "--cluster",
        is_flag=True,
        help="Include all nodes of the Ray cluster, through a short Ray job.",
    )
    @shared_option(
        "--nodes",
        "hosts",
        metavar="HOSTS",
        help="Query these hosts, without Ray: node[001-004,007].",
    )
    @shared_option("--via", type=click.Choice(VIA), help=f"How --nodes are reached.  [default: {VIA[0]}]")
    @shared_option(
        "--budget",
        type=Duration("5s", "1d", bare=True),
        metavar="TIME",
        help=waiting,
    )
    @functools.wraps(command)
    def with_nodes(
        *, cluster: bool, hosts: str | None, via: Via | None, budget: float | None, **others: Any
    ) -> Any:
        named = () if hosts is None else _hosts(hosts)
        if for_installers:
            others["budget"] = budget
        if cluster and named:
            raise UsageError("choose either --cluster, for the nodes of Ray, or --nodes")
        if via and not named:
            raise UsageError("--via requires --nodes HOSTS")
        if not cluster and not named:
            if budget is not None and not for_installers:
                raise UsageError("--budget requires --cluster or --nodes HOSTS")
            return command(nodes=None, **others)
        return command(nodes=RequestedNodes(named, via or VIA[0], budget or default_budget), **others)

    return with_nodes


def _hosts(text: str) -> tuple[str, ...]:
    """Return the names in a list in Slurm's format.

    Raises UsageError if one is not a host name, or could be read as an option.
    """
    from verl_doctor.toolkit.system.node_names import expand  # noqa: PLC0415 - few runs name nodes

    try:
        hosts = tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise UsageError(f"--nodes {text}: {error}; for instance node[001-004,007]") from None
    if not hosts:
        raise UsageError("--nodes does not name a host; for instance node[001-004,007]")
    if strange := next((host for host in hosts if not _HOST.fullmatch(host)), None):
        raise UsageError(f"--nodes {text}: '{strange}' is not a host name; for instance node[001-004,007]")
    return hosts


def _together(
    _ctx: click.Context, _param: click.Parameter, given: tuple[tuple[str, ...], ...]
) -> tuple[str, ...]:
    """Return the codes of an option that was given several times."""
    return tuple(dict.fromkeys(code for codes in given for code in codes))


def rule_options(command: Command) -> Command:
    """Options that choose rules and their assumptions; the command gets `rules`, `options` the assumption."""

    @shared_option(
        "--select",
        type=Codes(),
        multiple=True,
        callback=_together,
        metavar="CODES",
        help="Run only these rules or families: VLLM,PY101.",
    )
    @shared_option(
        "--ignore",
        type=Codes(),
        multiple=True,
        callback=_together,
        metavar="CODES",
        help="Skip these rules or families.",
    )
    @shared_option("--deep", is_flag=True, help="Also run slower rules, which try things; may take a minute.")
    @shared_option(
        "--gpu-memory",
        type=Size(),
        metavar="SIZE",
        help="Assume GPUs with this much memory each: 80GiB. Needs --deep.",
    )
    @functools.wraps(command)
    def with_rules(
        *,
        options: Options,
        select: tuple[str, ...],
        ignore: tuple[str, ...],
        deep: bool,
        gpu_memory: int | None,
        **others: Any,
    ) -> Any:
        if gpu_memory and not deep:
            raise UsageError("--gpu-memory requires --deep")
        assumed = replace(options, gpu_memory=gpu_memory or 0)
        return command(options=assumed, rules=Rules(select, ignore, deep), **others)

    return with_rules


def view_options(command: Command) -> Command:
    """Options that choose the output; the command gets `view`."""

    @_form_options(FORMATS)
    @shared_option("-v", "--verbose", is_flag=True, help="Show everything, including what is fine.")
    @functools.wraps(command)
    def with_view(*, form: str, file: Path | None, verbose: bool, **others: Any) -> Any:
        return command(view=View(form, file, verbose), **others)

    return with_view


def answer_options(command: Command) -> Command:
    """Options of a command with a result in the common formats; the command gets `form` and `file`."""
    return _form_options(ANSWER_FORMATS)(command)


def _form_options(formats: Sequence[str]) -> Callable[[Command], Command]:
    def decorated(command: Command) -> Command:
        @shared_option(
            "--format", "form", type=click.Choice(formats), help="The output format.  [default: text]"
        )
        @shared_option("--json", "as_json", is_flag=True, help="The same as --format json.")
        @shared_option("-q", "--quiet", is_flag=True, help="Show only the verdict, on one line.")
        @shared_option(
            "--output",
            "file",
            type=FileToWrite(output.ANSWER),
            metavar="FILE",
            help="Write to this file instead of stdout.",
        )
        @force_option
        @functools.wraps(command)
        def with_form(*, form: str | None, as_json: bool, quiet: bool, **others: Any) -> Any:
            return command(form=_form(form, as_json=as_json, quiet=quiet), **others)

        return with_form

    return decorated


def _form(form: str | None, *, as_json: bool, quiet: bool) -> str:
    """Return the format that the options choose. Raises UsageError if they conflict."""
    if as_json and form not in (None, "json"):
        raise UsageError(f"choose either --json or --format {form}")
    chosen = form or ("json" if as_json else "text")
    if not quiet:
        return chosen
    if chosen != "text":
        raise UsageError(f"--quiet applies to text only: remove it or --format {chosen}")
    return HEADLINE


def show_all_option(command: Command) -> Command:
    """-v for a command that shows less without it; the command gets `verbose`.

    `--all` of 0.1.0 does the same.
    """

    @shared_option("-v", "--verbose", is_flag=True, help="Show everything.")
    @click.option("-a", "--all", "every", is_flag=True, hidden=True)
    @functools.wraps(command)
    def with_verbose(*, verbose: bool, every: bool, **others: Any) -> Any:
        if every:
            hints.replaced("--all", "--verbose")
        return command(verbose=verbose or every, **others)

    return with_verbose
