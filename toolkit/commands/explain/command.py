"""`verl-doctor explain`: rules, topics, what workers see of variables, plugins, schemas, shell completion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from verl_doctor.toolkit.commands.explain import topics
from verl_doctor.toolkit.commands.explain.schemas import SCHEMAS, schema_text
from verl_doctor.toolkit.commands.explain.topics import TOPICS
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.options.completing import codes_with_titles
from verl_doctor.toolkit.options.completion import SHELLS, script
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import answer_options, show_all_option
from verl_doctor.toolkit.target import Options, UsageError

if TYPE_CHECKING:
    from verl_doctor.toolkit.engine.registry import Registry
    from verl_doctor.toolkit.rule import Check

_VARIABLES = "variables"
_CARD = "card"


class Subject(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """A code, or a topic."""

    name = "subject"

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete topics, and the codes of rules."""
        pages = [CompletionItem(name, help=text) for name, text in TOPICS.items()]
        codes = [CompletionItem(code, help=title) for code, title in codes_with_titles()]
        return [item for item in (*pages, *codes) if item.value.lower().startswith(incomplete.lower())]


@dataclass(frozen=True)
class _Lookup:
    """The options that look up something other than a rule or a topic."""

    listing: bool = False
    plugins: bool = False
    schema: str | None = None
    shell: str | None = None

    def chosen(self) -> list[str]:
        """Name the options that were given."""
        given = {
            "--list": self.listing,
            "--plugins": self.plugins,
            "--schema": self.schema is not None,
            "--completion": self.shell is not None,
        }
        return [option for option, is_given in given.items() if is_given]


@click.command(epilog=f"Topics: {'; '.join(f'{name}: {text}' for name, text in TOPICS.items())}.")
@click.argument("subject", metavar="[CODE | TOPIC]", default="", type=Subject())
@target_options
@job_options
@click.option(
    "--list", "listing", is_flag=True, help="List all rules: code, severity, what it finds, the fix."
)
@click.option("--plugins", is_flag=True, help="List what plugins add, and which could not be loaded.")
@click.option(
    "--schema",
    is_flag=False,
    flag_value=SCHEMAS[0],
    type=click.Choice(SCHEMAS),
    metavar="[NAME]",
    help="Print the JSON schema of a command's output.",
)
@click.option(
    "--completion",
    "shell",
    type=click.Choice(SHELLS),
    help="Print the completion script of a shell.",
)
@click.option(
    "--facts",
    type=PATH,
    metavar="FILE",
    help="With variables: use facts saved elsewhere (check --save-facts).",
)
@show_all_option
@answer_options
@click.pass_context
def explain(
    ctx: click.Context,
    *,
    subject: str,
    options: Options,
    listing: bool,
    plugins: bool,
    schema: str | None,
    shell: str | None,
    facts: Path | None,
    verbose: bool,
    form: str,
    file: Path | None,
) -> int:
    """Explain a rule or a topic: why it matters and how to fix it.

    CODE may also name a fault that only logs show. The letters of a code, such as CFG, list the rules of that
    family. Without a subject, the card of common errors is shown.

    `explain variables` lists the variables that the installed packages read. With a launch script, `explain
    variables run.sh` shows the value of each in the workers of that job, and what decides it.
    """
    lookup = _Lookup(listing, plugins, schema, shell)
    chosen = lookup.chosen()
    if len(chosen) > 1 or (chosen and subject):
        raise UsageError(f"choose one of {', '.join([*chosen, *([subject] if subject else [])])}")
    if chosen:
        return _look_up(ctx, lookup, form, file)
    topic = subject.lower() or _CARD
    if topic == _VARIABLES and (facts is not None or options.launch or options.ray_address):
        from verl_doctor.toolkit.commands.environment.command import seen_by_workers  # noqa: PLC0415 - only this topic

        return seen_by_workers(options, facts, form, file, verbose=verbose)
    if options.launch:
        raise UsageError(f"{subject} takes no further argument: remove {options.launch[0]}")
    from verl_doctor.toolkit.commands.explain.answer import PageAnswer, RulesAnswer  # noqa: PLC0415 - a TAB does without
    from verl_doctor.toolkit.console.view import show  # noqa: PLC0415 - it loads rich

    if subject.isalpha() and topic not in TOPICS:
        rules = RulesAnswer(_registry(), subject.upper())
        if rules.document():
            return show(rules, form, file)
    page = _variables(options) if topic == _VARIABLES else _page(subject, topic)
    return show(PageAnswer(topic if topic in TOPICS else subject.upper(), page), form, file)


def _look_up(ctx: click.Context, lookup: _Lookup, form: str, file: Path | None) -> int:
    from verl_doctor.toolkit.commands.explain.answer import (  # noqa: PLC0415 - a TAB does without
        PluginsAnswer,
        RulesAnswer,
        TextAnswer,
    )
    from verl_doctor.toolkit.console.view import show  # noqa: PLC0415 - it loads rich

    if lookup.shell is not None:
        return show(TextAnswer(script(lookup.shell, ctx.find_root().command)), "text", file)
    if lookup.schema is not None:
        return show(TextAnswer(schema_text(lookup.schema)), "text", file)
    return show(PluginsAnswer(_registry()) if lookup.plugins else RulesAnswer(_registry()), form, file)


def _registry() -> Registry:
    from verl_doctor.toolkit.engine import config, registry  # noqa: PLC0415 - a TAB and a topic do without

    with nothing_on_stdout():
        return registry.load(config.load(Path.cwd()).disable_plugins)


def _variables(options: Options) -> str:
    """The page of the variables for the installed packages."""
    from verl_doctor.toolkit.commands.environment.variable_table import variable_table  # noqa: PLC0415
    from verl_doctor.toolkit.engine.session import open_session  # noqa: PLC0415 - only this page looks at an environment

    with nothing_on_stdout():
        session = open_session(options)
        lines = list(variable_table(session.target, session.look()))
    return "\n".join(["# Variables, and what reads them here", "", *lines, ""])


def _page(subject: str, topic: str) -> str:
    return topics.page(topic) if topic in TOPICS else _rule(subject)


def _rule(code: str) -> str:
    """The page of a rule, or of what only logs show. Raises UsageError."""
    import difflib  # noqa: PLC0415 - only for an unknown name

    from verl_doctor.toolkit.commands.explain import documentation  # noqa: PLC0415 - see _registry
    from verl_doctor.toolkit.rule import family_of  # noqa: PLC0415

    known = _registry()
    check = known.check(code.upper())
    page = (
        documentation.explain_of_logs(code.upper(), known)
        if check is None
        else documentation.explain(check, known)
    )
    if page is None:
        codes = [row[0] for row in documentation.rows(known)]
        if begun := [each for each in codes if code[-1:].isdigit() and each.startswith(code.upper())]:
            raise UsageError(f"unknown rule or topic {code}; codes that begin with it: {', '.join(begun)}")
        family = family_of(code.upper())
        hint = f"{family} for those of that family" if documentation.rows(known, family) else "--list for all"
        names = {name.upper(): name for name in (*TOPICS, *codes)}
        near = difflib.get_close_matches(code.upper(), names, n=1, cutoff=0.75)
        run = f"did you mean {names[near[0]]}? Run" if near else "run"
        raise UsageError(
            f"unknown rule or topic {code}; {run} verl-doctor explain {hint}; topics: {', '.join(TOPICS)}"
        )
    return documentation.with_address(page, code.upper()) if _is_built_in(check) else page


def _is_built_in(check: Check | None) -> bool:
    """Whether the site has a page of a rule; None is a fault that only logs show, which no plugin adds."""
    return check is None or check.judge.__module__.startswith("verl_doctor.")
