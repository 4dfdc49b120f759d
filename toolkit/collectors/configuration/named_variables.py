"""Variables that a configuration names with OmegaConf's resolver.

The forms are `${oc.env:NAME}` and `${oc.env:NAME,default}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from verl_doctor.toolkit.collectors.launch.driver_variable import last_set
from verl_doctor.toolkit.collectors.launch.launch import Setting
from verl_doctor.toolkit.system.secret import is_secret

_NAMED = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*(?:,\s*([\w./~-]*)\s*)?\}")


def with_variables(tree: Any, shell: Mapping[str, str], settings: Sequence[Setting]) -> Any:
    """Return the tree with the values of the variables that it names.

    What is unknown or may be a secret stays as it is written.
    """
    if isinstance(tree, Mapping):
        return {key: with_variables(value, shell, settings) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_variables(value, shell, settings) for value in tree]
    if not isinstance(tree, str) or "${oc.env:" not in tree:
        return tree
    text = _NAMED.sub(lambda named: _value(named, shell, settings), tree)
    return None if text == "null" else text


def _value(named: re.Match[str], shell: Mapping[str, str], settings: Sequence[Setting]) -> str:
    name, default = named[1], named[2]
    variable = last_set(name, shell, settings)
    value = default if variable.known and variable.value is None else variable.value
    if not variable.known or value is None or "${" in value or is_secret(name, value):
        return named[0]
    return value
