"""What classes that verl makes of configuration sections declare about the launch script's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """The appended keys that verl's classes do not accept, and the types that they declare.

    The types are given where a value has another type than its default.

    Undecided keys are left out. `declared` are the names of types by key ("str", "float", "None"). `unread`
    are those of these keys that no code of verl seems to read, but for that of other training engines.
    `converted` are the declared types of the keys that the rollout's server converts to them, which refuses
    any other value, null included. `calculated` are keys that are null, each with the source that uses it
    without a check.
    """

    refused: tuple[Refused, ...] = ()
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    converted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calculated: Mapping[str, str] = field(default_factory=dict)
