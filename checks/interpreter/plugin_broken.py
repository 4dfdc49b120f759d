"""PY190: a plugin of verl-doctor could not be used."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.installed.plugins import PluginProblem, PluginProblems
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_STALE = PluginProblem(
    entry_point="our_rules",
    distribution="our-verl-rules",
    error="ModuleNotFoundError: No module named 'our_rules'",
)


def _examples() -> list[Example]:
    return [
        Example("all plugins load", (PluginProblems(),)),
        Example(
            "a plugin's module is missing", (PluginProblems((_STALE,)),), "plugin our_rules of our-verl-rules"
        ),
    ]


@check("PY190", severity="warning", examples=_examples)
def plugin_broken(plugins: PluginProblems) -> Iterator[Finding]:
    """A plugin of verl-doctor could not be used.

    ## Why it matters

    Its rules and fixes took no part in this run, so what they cover was not checked.

    ## How to fix

    Update or uninstall the distribution that declares the plugin, or name it under `disable_plugins` in
    `[tool.verl-doctor]`.
    """
    for problem in plugins.problems:
        yield Finding(
            f"the plugin {problem.entry_point} of {problem.distribution} could not be used: {problem.error}",
            Evidence(
                found=problem.error,
                wanted="an entry point that offers checks, fixes or collectors",
                read_from=f"the entry points of {problem.distribution}",
            ),
            remedy=(
                f"repair or remove {problem.distribution}, or set disable_plugins = "
                f'["{problem.distribution}"]'
            ),
            subject=Subject("plugin", problem.entry_point, problem.distribution),
        )
