"""What the rules about limits cannot judge in a container that hides its control groups."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.rule import Location, Unjudged

_HIDDEN = Unjudged(
    "what control groups allow",
    "the kernel reports some, but they are not mounted here",
    Location("/proc/self/cgroup"),
)


def hidden_groups(limits: HostLimits) -> tuple[Unjudged, ...]:
    """For a rule's `unjudged`: limits from other sources are judged anyway."""
    return (_HIDDEN,) if limits.shell.groups.hidden else ()
