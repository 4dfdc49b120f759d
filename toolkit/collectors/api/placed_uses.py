"""The uses on the paths of a job: which path runs each of them, and under which condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verl_doctor.toolkit.collectors.api.demand import Demand
from verl_doctor.toolkit.collectors.api.job_paths import Reach, condition_of, unmet
from verl_doctor.toolkit.collectors.api.reading import Reading
from verl_doctor.toolkit.collectors.api.use import Use, Uses
from verl_doctor.toolkit.collectors.api.uses import ApiUse

# Kinds of break that occur when the function is run. The other kinds concern whole classes.
_CALLED = frozenset(
    {
        "attribute",
        "final",
        "import",
        "keyword",
        "meaning",
        "option",
        "patch",
        "positional",
        "required",
        "sent",
        "store",
    }
)


def placed_uses(reached: dict[str, Reach], reading: Reading) -> Iterator[ApiUse]:
    """Yield every use in the modules that the paths run or may load later.

    Names that verl itself sets do not count as missing.
    """
    modules = sorted(_optional(reached.values(), reading))
    every = [uses for module in modules if (uses := reading.uses(module)) is not None]
    patched: dict[str, set[str]] = {}
    for uses in every:
        for name in uses.patched:
            patched.setdefault(name, set()).add(uses.module)
    for uses in every:
        for use in _placed(uses, reached, reading):
            missed = use.kind == "attribute" and use.resolution == "missing"
            by_others = patched.get(use.name, set()) - {uses.module} if missed else None
            yield replace(use, resolution="unknown", reason="verl itself sets it") if by_others else use


def _optional(reached: Iterable[Reach], reading: Reading) -> set[str]:
    """Return the modules on the paths, and those they may import later or conditionally."""
    on_paths = {module for part in reached for module in part.modules}
    found: set[str] = set()
    waiting = sorted(on_paths)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        uses = reading.uses(module)
        if uses is not None and (module in on_paths or uses.uses):
            waiting += [entry.module for entry in uses.imports if not entry.guarded]
    return found


def _placed(uses: Uses, reached: dict[str, Reach], reading: Reading) -> Iterator[ApiUse]:
    """Add to each use of a module the paths that run it, and under which condition."""
    for use in uses.uses:
        loaded = tuple(path for path, part in reached.items() if uses.module in part.modules)
        if use.kind == "sent" and not loaded:
            continue  # may be sent to the workers of another engine
        run = tuple(
            path for path in loaded if not use.unit or f"{uses.module}:{use.unit}" in reached[path].units
        )
        if use.unit in uses.dead:
            use = replace(use, guard=use.guard or f"{use.unit}() is for other releases")  # noqa: PLW2901
        certain = tuple(path for path in run if not unmet(use.when, reached[path].sent))
        when = "" if certain else " and ".join(use.when)
        off = bool(when) and any((use.unit, condition) in uses.off for condition in use.when)
        settings = reading.around.settings
        if use.unit and not run and use.resolution == "missing":
            called, never = condition_of(use.unit, uses, reading.read)
            plain = called == f"{use.unit.rpartition('.')[2]}() is called"
            switched_on = settings is not None and settings.has_part(f"{uses.module}.{use.unit}")
            if plain and switched_on and _is_mentioned(use.unit, uses, frozenset({use.unit})):
                # The part that the script switches on calls it, or puts it in place of a function of vLLM.
                called = ""
                certain = loaded if not use.when else ()
            when, off = " and ".join(filter(None, (called, when))), off or never
        for module in use.unread if not use.guard else ():
            reading.needed.setdefault(module, set()).update(certain)
        off = settings is not None and settings.chosen and (off or settings.leaves_out(uses.module))
        yield _fact(use, uses.path, loaded if when else certain, when, off=bool(when) and off)


def _is_mentioned(unit: str, uses: Uses, seen: frozenset[str]) -> bool:
    """Return whether a function is mentioned in its module, other than by itself.

    Mentions by code that only other releases reach do not count either.
    """
    if not unit:
        return True
    name = unit.rpartition(".")[2]
    above = {other for other, names in uses.mentions.items() if name in names} - seen
    apart = seen | above
    # What nothing in the module mentions is called from other modules.
    return any(
        other not in uses.dead and (_is_mentioned(other, uses, apart) or not _names(other, uses))
        for other in above
    )


def _names(unit: str, uses: Uses) -> bool:
    """Return whether anything in the module mentions a function."""
    name = unit.rpartition(".")[2]
    return any(name in names for other, names in uses.mentions.items() if other != unit)


def _fact(use: Use, path: str, paths: tuple[str, ...], when: str, *, off: bool) -> ApiUse:
    return ApiUse(
        path=path,
        line=use.line,
        kind=use.kind,
        name=use.name,
        resolution=use.resolution,
        phase="start" if use.unit else "import",
        paths=paths,
        when=when,
        guard=use.guard,
        now=use.nearest,
        reason=use.reason,
        read_from=use.read_from,
        column=use.column,
        handler=use.handler,
        off=off,
        unit=use.unit,
    )


def demanded(
    found: Iterable[ApiUse], begin: Mapping[str, tuple[str, ...]], reading: Reading
) -> Iterator[ApiUse]:
    """Add the condition to each break in a function that is never called with the job's settings."""
    settings = reading.around.settings
    entries = [name.partition(":")[0] for modules in begin.values() for name in modules]
    demand = Demand(reading.verl, settings, reading.whole, entries) if settings is not None else None
    for use in found:
        when = ""
        if (
            demand is not None
            and use.breaks
            and use.unit
            and use.paths
            and not use.when
            and use.kind in _CALLED
        ):
            owner, _, last = use.unit.rpartition(".")
            when = demand.condition(owner if owner and last.startswith("__") else last)
        off = bool(when) and settings is not None and settings.chosen
        yield replace(use, when=when, off=off) if when else use
