"""Fix for NET103: name an existing interface."""

from __future__ import annotations

from verl_doctor.patches.variables._interfaces import interface_fix

interface_name = interface_fix(
    "interface-name",
    repairs="NET103",
    title="Name an existing interface, in the syntax that the variable's reader supports.",
)
