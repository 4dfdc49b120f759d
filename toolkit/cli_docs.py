"""Commands that explain: the rules, one rule, the plugins, the schema, shell completion, the demonstration."""

from __future__ import annotations

import importlib.resources
import json
import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from verl_doctor.toolkit import config, documentation, registry, topics
from verl_doctor.toolkit.cli_options import target_options
from verl_doctor.toolkit.registry import Registry
from verl_doctor.toolkit.streams import nothing_on_stdout
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.text import harmless
from verl_doctor.toolkit.topics import TOPICS
from verl_doctor.toolkit.view import console_for

_DOCUMENTS = (
    "report",
    "matrix",
    "environment",
    "clean",
    "watch",
    "logs",
    "actors",
    "warmup",
    "smoke",
    "checklist",
    "sites",
    "guard",
    "snapshot",
    "compare",
    "page",
)
_SHELLS = ("bash", "zsh", "fish")
_LISTINGS = click.Choice(("text", "json", "markdown"))


def _known() -> Registry:
    with nothing_on_stdout():
        return registry.load(config.load(Path.cwd()).disable_plugins)


@click.command()
@click.option("--format", "form", type=_LISTINGS, default="text", show_default=True, help="How to list them.")
def rules(form: str) -> None:
    """List all rules: code, severity, what it finds, and the fix.

    Those of the family LOG are no rules: verl-doctor logs alone tells them.
    """
    known = _known()
    if form == "json":
        keys = ("code", "severity", "cost", "fix", "title")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in documentation.rows(known)], indent=2))
    elif form == "markdown":
        print("\n".join(documentation.table(known)))
    elif not sys.stdout.isatty():
        for code, severity, cost, fixes, title in documentation.rows(known):
            print(f"{code}\t{severity}\t{cost}\t{title}\t{fixes}")
    else:
        from rich.table import Table  # noqa: PLC0415 - a check does without it

        shown = Table("code", "severity", "what it finds", "fix", box=None, pad_edge=False)
        for code, severity, _, fixes, title in documentation.rows(known):
            shown.add_row(code, severity, title, fixes)
        console_for(sys.stdout).print(shown)


@click.command(epilog=f"Topics: {'; '.join(f'{name}: {told}' for name, told in TOPICS.items())}.")
@click.argument("subject", metavar="[CODE | TOPIC]", default="card")
@target_options
def explain(subject: str, options: Options) -> None:
    """Explain one rule, or a topic: why it matters and how to fix it.

    CODE may also be that of a fault which only logs tell. Without one the card of the commonest errors is shown. The topic `variables` is
    about what is installed.
    """
    topic = subject.lower()
    if topic == "variables":
        page = _variables(options)
    else:
        page = topics.page(topic) if topic in TOPICS else _rule(subject)
    if sys.stdout.isatty():
        from rich.markdown import Markdown  # noqa: PLC0415 - it takes long to load, and a check does without it

        console_for(sys.stdout).print(Markdown(page))
    else:
        print(page, end="")


def _variables(options: Options) -> str:
    """The page of the variables, for what is installed."""
    from verl_doctor.toolkit.session import open_session  # noqa: PLC0415 - only this page looks at an environment
    from verl_doctor.toolkit.variable_table import variable_table  # noqa: PLC0415

    with nothing_on_stdout():
        session = open_session(options)
        lines = list(variable_table(session.target, session.look()))
    return "\n".join(["# Variables, and who reads them here", "", *lines, ""])


def _rule(code: str) -> str:
    """The page of a rule, or of what only logs tell. Raises UsageError."""
    known = _known()
    check = known.check(code.upper())
    page = (
        documentation.explain_of_logs(code.upper(), known)
        if check is None
        else documentation.explain(check, known)
    )
    if page is None:
        family = code.upper().rstrip("0123456789")
        near = [other for other, *_ in documentation.rows(known) if other.rstrip("0123456789") == family]
        hint = f"this family has {', '.join(near)}" if near else "verl-doctor rules lists all"
        raise UsageError(f"no rule is called {code}; {hint}, and there are the topics {', '.join(TOPICS)}")
    return page


@click.command()
def plugins() -> None:
    """List what other distributions add; what could not be loaded."""
    known = _known()
    if not known.plugins and not known.problems.problems:
        print("no plugins; entry points in verl_doctor.checks, .fixes and .facts would add some")
    for plugin in known.plugins:
        kind = plugin.group.removeprefix("verl_doctor.")
        print(harmless(f"{plugin.distribution} {plugin.version}: {kind} {', '.join(plugin.adds)}"))
    for problem in known.problems.problems:
        print(harmless(f"{problem.distribution}: {problem.entry_point} could not be loaded: {problem.error}"))


@click.command()
@click.argument("document", type=click.Choice(_DOCUMENTS), default=_DOCUMENTS[0])
def schema(document: str) -> None:
    """Print the JSON schema of what a command prints."""
    print(schema_text(document), end="")


def schema_text(document: str = _DOCUMENTS[0]) -> str:
    """A JSON schema that ships with the package."""
    data = importlib.resources.files("verl_doctor.toolkit") / "data"
    return (data / f"{document}.schema.json").read_text("utf-8")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: verl-doctor completion bash > ~/.local/share/bash-completion/completions/verl-doctor
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise UsageError(f"no completion for {shell}; there is one for {', '.join(_SHELLS)}")
    print(maker(context.find_root().command, {}, "verl-doctor", "_VERL_DOCTOR_COMPLETE").source())


@click.command()
@click.option("--keep", is_flag=True, help="Leave the temporary folder there and say where it is.")
def demo(*, keep: bool) -> int:
    """Watch check, fix and undo on a miniature environment."""
    from verl_doctor.toolkit import demo as miniature  # noqa: PLC0415 - only this command needs it

    return miniature.run(keep=keep)
