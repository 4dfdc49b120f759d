"""How each kind of command is followed."""

from __future__ import annotations

from collections.abc import Mapping

from verl_doctor.toolkit.sources.shell import compound
from verl_doctor.toolkit.sources.shell.loops import loop
from verl_doctor.toolkit.sources.shell.simple import simple
from verl_doctor.toolkit.sources.shell.syntax import AndOr, Case, Group, If, Loop, Node, Pipeline, Simple
from verl_doctor.toolkit.sources.shell.walk import Follower

COMMANDS: Mapping[type[Node], Follower] = {
    Simple: simple,
    Group: compound.group,
    Pipeline: compound.pipeline,
    AndOr: compound.and_or,
    If: compound.if_command,
    Case: compound.case_command,
    Loop: loop,
}
"""For `Walk.followers`. Definitions of functions and what could not be parsed need none."""
