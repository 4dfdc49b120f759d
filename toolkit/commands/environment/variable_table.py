"""The variables that people set for a verl job: the purpose of each, and which installed packages read it."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Mapping
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, readers_of
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.system import toml
from verl_doctor.toolkit.target import Target


def purposes() -> Mapping[str, str]:
    """Return each variable with its purpose."""
    data = importlib.resources.files("verl_doctor.toolkit") / "data" / "variables.toml"
    return dict(toml.loads(data.read_text("utf-8"))["variables"])


def variable_table(target: Target, collection: Collection) -> Iterator[str]:
    """Yield the lines of a Markdown list: the variable, its purpose, and which installed packages read it."""
    known = purposes()
    found = readers_of(
        known,
        target,
        collection.get(Interpreter),
        collection.get(VerlTrees),
        collection.get(VllmTree),
    )
    for name, purpose in known.items():
        read_by = (
            f"Readers unknown: {found.reason}." if isinstance(found, Unknown) else _read_by(found.get(name))
        )
        yield f"* `{name}`: {purpose}. {read_by}"


def _read_by(reading: Reading | None) -> str:
    """Return a sentence on which packages read it here."""
    if reading is None:
        return "Readers unknown: no package of its family is installed or known."
    if reading.readers:
        packages = ", ".join(dict.fromkeys(reader.package for reader in reading.readers))
        first = reading.readers[0]
        return (
            f"Read by {packages} ({Path(first.path).name}:{first.line})."
            if first.line
            else f"Read by {packages}."
        )
    if reading.unclear:
        return f"Readers unknown: {reading.unclear}."
    near = f"; {reading.near} is read" if reading.near else ""
    return f"**No installed package reads it**{near}."
