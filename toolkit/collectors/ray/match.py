"""How strictly the installed Ray compares Python versions when a job joins a cluster.

ray/_private/utils.py: check_version_info. The whole version must be the same; in later releases a variable
can relax this.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.collectors.launch.driver_variable import driver_variable
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import Unreadable, read

LEVEL = "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL"
_FILE = "_private/utils.py"


@dataclass(frozen=True)
class RayMatch:
    """`variable`: this Ray reads the variable `LEVEL`.

    `level` is its value for the job, "patch" where it is not set or not read.
    """

    variable: bool
    level: str = "patch"


@collector(kept=True)
def ray_match(trees: LibraryTrees, variables: Variables, launch: Launch | Unknown) -> RayMatch | Unknown:
    """Check whether the installed Ray reads the variable."""
    tree = next((tree for tree in trees.trees if tree.module == "ray"), None)
    if tree is None:
        return Absent("Ray is not installed in this environment")
    source = read(Path(tree.folder, _FILE))
    if isinstance(source, Unreadable):
        return Unknown(source.reason)
    variable = LEVEL.encode() in source
    level = driver_variable(LEVEL, variables.values, launch).value if variable else None
    return RayMatch(variable, level or "patch")
