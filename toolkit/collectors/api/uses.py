"""What verl uses of a library, and whether the installed one has it, read from both source trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.collectors.installed.trees import Tree


@dataclass(frozen=True)
class ApiUse:
    """A place where verl uses another library.

    `kind` is "import", "attribute", "store", "call", "keyword", "positional", "meaning" or "required"; `name`
    what is used (`module:name` for an import, `callee(argument)` for an argument). An "option" is passed on
    the library's command line, a "patch" is a name that verl replaces, "sent" a method that it has workers
    run by name. An "override", a "result" and an "abstract" method concern classes that extend the library's,
    as does "final", an enumeration with members, which Python does not let them extend. An "inside" use is an
    import by the library itself, from a third package or from its own modules. A "refusal" is what verl
    itself raises about this release, with the message as its name; a "distribution" what it raises because
    pip has the library under the name `name`.

    `now` is where a missing name is defined today, or the most similar accepted parameter. `guard` is what
    avoids or catches a miss here. `when` is the condition under which the place is reached at all, `paths`
    the paths of a job that reach it (none: optional parts of verl). `column` counts UTF-8 bytes, as Python
    does. `phase` is "import" for code that runs when the module is imported, "start" for the rest. `text` is
    the source line. `handler` is an `except` around an import that is meant for its failure but does not
    catch this one. `behind` is the place ("file:line") of an import that fails before this place is reached.
    `elsewhere` are the paths that reach it if the job takes none of those. `off`: the job's own settings do
    not meet the condition. `unit` is the function or method that contains it.
    """

    path: str
    line: int
    kind: str
    name: str
    resolution: Literal["present", "missing", "unknown"]
    phase: Literal["import", "start"]
    paths: tuple[str, ...] = ()
    when: str = ""
    guard: str = ""
    now: str = ""
    reason: str = ""
    read_from: str = ""
    column: int = 0
    text: str = ""
    handler: str = ""
    behind: str = ""
    elsewhere: tuple[str, ...] = ()
    off: bool = False
    unit: str = ""

    @property
    def breaks(self) -> bool:
        """Whether the line fails when it is reached."""
        return self.resolution == "missing" and not self.guard

    @property
    def last(self) -> str:
        """The bare name of the argument, the attribute, or the imported object."""
        return self.name.rstrip(")").replace("(", ".").replace(":", ".").rpartition(".")[2]


@dataclass(frozen=True)
class Unread:
    """A module of verl or of the library that could not be read: why, and the paths that load it.

    `kind` is "syntax" (its text is not valid Python), "file" (the file or its folder cannot be read),
    "missing" (verl imports it at this place but it does not exist), or "reader" (only the doctor cannot read
    it, perhaps because it is written for a newer Python than the doctor's): then the paths need not fail and
    are not judged.
    """

    module: str
    path: str
    reason: str
    paths: tuple[str, ...] = ()
    line: int = 0
    kind: Literal["syntax", "file", "missing", "reader"] = "syntax"


@dataclass(frozen=True)
class ApiUses:
    """All uses of one library on the paths of a job and in what they may load later.

    `uses` lists those that are missing or unknown; `present` counts the others. `paths` are the paths that
    this verl has at all. `unread` are modules that they need and that could not be read. `consulted` are the
    settings and variables that decided paths.
    """

    verl: Tree
    library: Tree
    uses: tuple[ApiUse, ...] = ()
    present: int = 0
    paths: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()
    consulted: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConsultedSettings:
    """What was consulted for each of the latest results for two trees, the newest first."""

    names: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class VllmUses(ApiUses):
    """What verl uses of vLLM, on the rollout paths."""


@dataclass(frozen=True)
class LibraryUses:
    """What verl uses of Ray, transformers, tensordict and SGLang, if installed, on all paths of a job.

    `unread` are modules of verl that the paths need and that could not be read.
    """

    verl: Tree
    answers: tuple[ApiUses, ...]
    paths: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()


def rollouts(uses: VllmUses) -> tuple[str, ...]:
    """Return the rollout paths that this verl has, which rules about rollouts judge."""
    return uses.paths


def every_path(uses: LibraryUses) -> tuple[str, ...]:
    """Return the trainer and the rollout paths that this verl has."""
    return uses.paths
