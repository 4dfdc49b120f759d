"""Fix for RAY106: make the job and Ray send their token."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, SetVariable, fix
from verl_doctor.toolkit.rule import Finding


@fix("ray-token-mode", repairs="RAY106", safety="safe", restart="the job's shell")
def ray_token_mode(_: Finding) -> list[Change]:
    """Let the job and Ray send their token."""
    return [
        SetVariable(
            "RAY_AUTH_MODE",
            "token",
            (
                "The Ray that the job joins requires a token, which a driver given its address does not "
                "send by default."
            ),
        )
    ]
