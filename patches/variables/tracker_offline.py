"""Fix for ENV118: let a tracker keep its runs on this machine."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.variables.trackers import Trackers
from verl_doctor.toolkit.rule import Finding, Subject


@fix("tracker-offline", repairs="ENV118", safety="unsafe", restart="the job")
def tracker_offline(finding: Finding, trackers: Trackers) -> list[Change] | Refusal:
    """Let a tracker keep its runs on this machine.

    Unsafe: the run does not appear in the browser until it is uploaded (`wandb sync`).
    """
    named = [tracker for tracker in trackers.trackers if finding.subject == Subject("tracker", tracker.name)]
    why = "no key for the server, or no network"
    changes: list[Change] = [
        SetVariable(tracker.mode_variable, "offline", why, "a key or a network is available")
        for tracker in named
    ]
    return changes or Refusal("no known tracker is named")
