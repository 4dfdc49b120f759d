"""One file of a Hydra configuration: its content, its defaults list, its package, and the line of each key.

YAML as OmegaConf reads it (omegaconf/_utils.py, get_yaml_loader): `1e-6` is a number, a date is a text, a
duplicate key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

_FLOAT = re.compile(
    r"""(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))\Z""",
    re.VERBOSE,
)
_PACKAGE = re.compile(r"^#[ \t]*@package[ \t:]+(\S+)[ \t]*$", re.MULTILINE)
_DEPRECATED = re.compile(r"^\W*deprecated\b|\[(?:will be )?deprecated|\bwill be deprecated", re.IGNORECASE)
_DEEPEST = 60


class NoConfigError(Exception):
    """The file is not YAML that OmegaConf accepts; the message is the reason."""


@dataclass(frozen=True)
class ConfigFile:
    """The content of a file without its defaults list; `lines` by path, for instance ("actor", "lr").

    `package` is the header's.

    `deprecated` are the keys that a comment after or above them marks as deprecated, with the comment.
    """

    content: Any
    defaults: list[Any] | None
    package: str | None
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    deprecated: dict[tuple[str, ...], str] = field(default_factory=dict)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1 with OmegaConf's numbers."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def read_config(text: str) -> ConfigFile:
    """Read a configuration file. Raises NoConfigError."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines: dict[tuple[str, ...], int] = {}
            content = {} if node is None else _plain(node, loader, (), lines)
        finally:
            loader.dispose()
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        reason = getattr(problem, "problem", None) or "this is no YAML"
        raise NoConfigError(f"{f'line {mark.line + 1}: ' if mark else ''}{reason}") from None
    except (RecursionError, ValueError):
        raise NoConfigError("this YAML is nested too deeply") from None
    defaults = content.pop("defaults", None) if isinstance(content, dict) else None
    if defaults is not None and not isinstance(defaults, list):
        raise NoConfigError("`defaults` is not a list")
    package = _PACKAGE.search("\n".join(_header(text)))
    return ConfigFile(
        content, defaults, package.group(1) if package else None, lines, _deprecated(text, lines)
    )


def _deprecated(text: str, lines: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], str]:
    """Return the comments that call a key deprecated: after it, or directly above it."""
    if "deprecat" not in text.lower():
        return {}
    rows = text.splitlines()
    found = {}
    for key, line in lines.items():
        comment = rows[line - 1].partition(" #")[2]
        above = line - 2
        while above >= 0 and rows[above].lstrip().startswith("#"):
            comment = f"{rows[above].lstrip().lstrip('#')} {comment}"
            above -= 1
        if _DEPRECATED.search(comment):
            found[key] = " ".join(comment.split())
    return found


def _header(text: str) -> Iterator[str]:
    """Yield the comments before the first line of content."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            return
        yield line


def _plain(node: yaml.Node, loader: Any, path: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> Any:
    """Return a node as Python values."""
    if len(path) > _DEEPEST:
        raise NoConfigError("this is nested too deeply")
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node)
            if not isinstance(key, (str, int, float, bool)):
                raise NoConfigError(f"line {key_node.start_mark.line + 1}: a key is not a name")
            if key in found:
                raise NoConfigError(f"line {key_node.start_mark.line + 1}: found duplicate key {key}")
            inner = (*path, str(key))
            lines[inner] = key_node.start_mark.line + 1
            found[key] = _plain(value_node, loader, inner, lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, loader, (*path, ""), {}) for item in node.value]
    return loader.construct_object(node)
