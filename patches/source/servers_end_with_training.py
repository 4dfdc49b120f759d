"""Fix for LEFT130: the rollout servers' manager gets a `cleanup()`, called by the trainer when `fit` ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_doctor.patches.shared.edited_files import edited_sources
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.configuration.rollout_servers import (
    END,
    MANAGER,
    SERVERS,
    TRAIN,
    WORKERS,
    RolloutServers,
    ServingClass,
    method_of,
)
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText

CODE = "LEFT130"
_DECORATOR = "_ends_its_servers"
_THREAD_WAIT = 5  # seconds

_CLEANUP = f'''\
def {END}(self):
    """Stop the chat scheduler and end all workers and servers. Every step is tried, even if another fails."""
    def attempt(what, step, *arguments):
        try:
            step(*arguments)
        except Exception as error:
            print(f"{{type(self).__name__}}.{END}: {{what}}: {{error!r}}")
    loop = getattr(self, "chat_scheduler_loop", None)
    thread = getattr(self, "chat_scheduler_thread", None)
    if loop is not None:
        attempt("stop the chat scheduler", loop.call_soon_threadsafe, loop.stop)
    if thread is not None:
        attempt("wait for the chat scheduler", thread.join, {_THREAD_WAIT})
    for kept in ("{WORKERS}", "{SERVERS}"):
        for actor in getattr(self, kept, None) or ():
            if actor is not None:
                attempt(f"end one of {{kept}}", ray.kill, actor)
        setattr(self, kept, [])'''

_PASSED_ON = f'''\
def {END}(self):
    """End the servers of the rollout."""
    end = getattr(getattr(self, "{MANAGER}", None), "{END}", None)
    if end is not None:
        end()'''

_DECORATION = f'''\
def {_DECORATOR}(train):
    """End the rollout servers when a trainer's method ends, whether it returns or raises."""
    import functools
    @functools.wraps(train)
    def train_and_end(self, *arguments, **options):
        try:
            return train(self, *arguments, **options)
        finally:
            end = getattr(getattr(self, "{MANAGER}", None), "{END}", None)
            try:
                if end is not None:
                    end()
            except Exception as error:
                print(f"{MANAGER}.{END}: {{error!r}}")
    return train_and_end'''


@fix(
    "servers-end-with-training",
    repairs=CODE,
    safety="unsafe",
    needed="verl 0.4.0 to 0.5.0, and copies of them, with rollout.mode=async",
    restart="the job: running training keeps the old code",
)
def servers_end_with_training(
    _: Finding, servers: RolloutServers, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """End the rollout servers, their workers and the chat scheduler when training ends.

    Unsafe because a program that uses the trainer after `fit` finds no servers any more.
    """
    lacking = [manager for manager in servers.managers if not manager.ends]
    careless = [trainer for trainer in servers.trainers if not trainer.ends]
    holding = [holder for holder in servers.holders if not holder.ends]

    def ending(source: SourceText) -> bytes:
        path = source.path
        edits = [_with_cleanup(source, manager) for manager in lacking if manager.path == path]
        edits += [_with_method(source, holder.name, _PASSED_ON) for holder in holding if holder.path == path]
        edits += _decorated(source, [trainer for trainer in careless if trainer.path == path])
        return source.edited(edits, marker.comment(CODE))

    paths = {part.path for part in (*lacking, *careless, *holding)}
    return edited_sources(sorted(paths), sources, ending)


def _with_cleanup(source: SourceText, manager: ServingClass) -> Edit:
    """Return the method that ends the servers. Raises CannotEdit."""
    if not _binds(source.tree, "ray"):
        raise CannotEdit(f"{source.path} does not import ray at its top")
    return _with_method(source, manager.name, _CLEANUP)


def _with_method(source: SourceText, name: str, method: str) -> Edit:
    """Add a method after the last statement of a class. Raises CannotEdit."""
    node = _class(source, name)
    last = node.body[-1]
    if not source.is_alone(last):
        raise CannotEdit(f"{source.path}:{last.lineno}: there is other code on this line")
    text, end = source.indented(method, node.body[0]), source.newline
    text = f"{end}{source.indent(node.body[0])}{text}"
    behind = last.end_lineno or last.lineno
    if behind < len(source.lines):
        at = source.line_start(behind + 1)
        return Edit(at, at, text + end)
    at = source.end(last)
    return Edit(at, at, end + text)


def _decorated(source: SourceText, trainers: list[ServingClass]) -> Iterator[Edit]:
    """Yield the decorator before the first of the classes, and its use at each `fit`. Raises CannotEdit."""
    nodes = [_class(source, trainer.name) for trainer in trainers]
    for node in nodes:
        fit = method_of(node, TRAIN)
        if not isinstance(fit, ast.FunctionDef):
            raise CannotEdit(f"{source.path}:{node.lineno}: {node.name}.{TRAIN} is not a plain method")
        at = source.line_start(_first_line(fit))
        yield Edit(at, at, f"{source.indent(fit)}@{_DECORATOR}{source.newline}")
    if nodes:
        first = min(nodes, key=lambda node: node.lineno)
        at = source.line_start(_first_line(first))
        end = source.newline
        yield Edit(at, at, source.indented(_DECORATION, first) + end * 3)


def _class(source: SourceText, name: str) -> ast.ClassDef:
    found = [node for node in source.tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1:
        raise CannotEdit(f"{source.path} has no single class {name}: it has changed since it was read")
    return found[0]


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> int:
    """Return the line of a definition's first decorator, or its own."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _binds(tree: ast.Module, module: str) -> bool:
    return any(
        (alias.asname or alias.name) == module
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    )
