"""The declaration of options that several commands have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from verl_doctor.toolkit.target import UsageError

Command = Callable[..., Any]


class SharedOption(click.Option):
    """An option that many commands have: their help lists it after their own."""


shared_option = functools.partial(click.option, cls=SharedOption)
"""Declare an option of several commands."""


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
