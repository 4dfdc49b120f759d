"""Options that choose rules and what they assume."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import click

from verl_doctor.toolkit.options.shared import Command, shared_option
from verl_doctor.toolkit.options.value_types import Codes, Size
from verl_doctor.toolkit.target import Options, UsageError


@dataclass(frozen=True)
class Rules:
    """Which rules to run, and whether to run slow ones."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    deep: bool = False


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
