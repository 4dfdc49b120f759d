"""What the rules about limits cannot tell where a container does not show its control groups."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.rule import Location, Unjudged

_HIDDEN = Unjudged(
    "what control groups allow",
    "the kernel names some, and they are not mounted here",
    Location("/proc/self/cgroup"),
)


def hidden_groups(limits: HostLimits) -> tuple[Unjudged, ...]:
    """For a rule's `unjudged`: what else sets limits is judged all the same."""
    return (_HIDDEN,) if limits.shell.groups.hidden else ()
