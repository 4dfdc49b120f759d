"""Keys that the launch script appends to a section of which verl makes an object, and whether its class takes them."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.configuration.configuration import Asked


@dataclass(frozen=True)
class Refused:
    """A key that a class has no field for. `word` is the override, `section` where it stands.

    `read_from` is where verl makes an object of the section, as "path:line".
    """

    word: Asked
    section: str
    name: str
    class_name: str
    read_from: str = ""


@dataclass(frozen=True)
class ConfigClasses:
    """The appended keys that verl's classes do not take. What cannot be told is not among them."""

    refused: tuple[Refused, ...] = ()
