"""Ray's token authentication, as a job started from here would use it. The token itself is never read.

Ray has it since 2.52 (https://docs.ray.io/en/latest/ray-security/token-auth.html). It reads the token from
RAY_AUTH_TOKEN, from the file that RAY_AUTH_TOKEN_PATH names, or from ~/.ray/auth_token.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.collectors.launch.driver_variable import driver_variable
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_SETUP = "_private/authentication/authentication_token_setup.py"
_AUTOMATIC = "maybe_enable_token_auth_if_token_available"


@dataclass(frozen=True)
class RayToken:
    """`mode` is RAY_AUTH_MODE of the job's driver, "" if not set.

    `path` is the readable file with the token, "" if there is none.

    `in_variable`: RAY_AUTH_TOKEN is set. `known`: the installed Ray has such tokens. `by_itself`: without a
    `mode` it uses a token that it finds when it starts a head or joins the cluster of this machine, but not
    with a given address.
    """

    mode: str = ""
    path: str = ""
    in_variable: bool = False
    known: bool = True
    by_itself: bool = False

    @property
    def is_set(self) -> bool:
        """Whether there is a token."""
        return self.in_variable or bool(self.path)


@collector(kept=True)
def ray_token(
    trees: LibraryTrees, variables: Variables, launch: Launch | Unknown, machine: Machine
) -> RayToken | Unknown:
    """Check which variables are set, and whether the file exists and the installed Ray supports tokens."""
    tree = next((tree for tree in trees.trees if tree.module == "ray"), None)
    if tree is None:
        return Absent("Ray is not installed in this environment")
    setup = Path(tree.folder, _SETUP)
    known = os.path.isfile(setup)
    return RayToken(
        (driver_variable("RAY_AUTH_MODE", variables.values, launch).value or "").strip().lower(),
        token_file(machine),
        "RAY_AUTH_TOKEN" in variables.withheld,
        known,
        known and _AUTOMATIC in setup.read_text("utf-8", "replace"),
    )


def token_file(machine: Machine) -> str:
    """Return the file that holds the user's token; "" if none is readable and not empty."""
    named, home = machine.environ.get("RAY_AUTH_TOKEN_PATH"), machine.environ.get("HOME")
    if not named and not home:
        return ""
    place = machine.cwd / named if named else Path(home or "", ".ray", "auth_token")
    try:
        readable = os.path.isfile(place) and place.stat().st_size > 0 and os.access(place, os.R_OK)
    except OSError:
        readable = False
    return str(place) if readable else ""
