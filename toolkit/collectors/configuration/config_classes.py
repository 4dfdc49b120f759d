"""Keys that the launch script appends to a section that verl converts to an object, and whether its class accepts them."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.configuration.configuration import OverrideWord


@dataclass(frozen=True)
class Refused:
    """A key for which a class has no field. `word` is the override, `section` its section.

    `read_from` is where verl converts the section to an object, as "path:line".
    """

    word: OverrideWord
    section: str
    name: str
    class_name: str
    read_from: str = ""


@dataclass(frozen=True)
class ConfigClasses:
    """The appended keys that verl's classes do not accept. Undecided keys are left out."""

    refused: tuple[Refused, ...] = ()
