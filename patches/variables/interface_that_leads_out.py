"""Fix for NET104: name the interface that leads to the other nodes."""

from __future__ import annotations

from verl_doctor.patches.variables._interfaces import interface_fix

interface_that_leads_out = interface_fix(
    "interface-that-leads-out",
    repairs="NET104",
    title="Name the interface that leads to the other nodes.",
)
