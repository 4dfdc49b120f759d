"""Which Ray the engine process of verl's async rollout would join, compared with the Ray of its workers."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.network.network import is_address
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.ray.engine_ray import Choice, EngineRay
from verl_doctor.toolkit.collectors.ray.job_nodes import option
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import parse_expression

AUTO = "auto"
_READ_BY_RAY = ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR")


@dataclass(frozen=True)
class EngineReach:
    """How the engine process gets the address of the workers' Ray.

    `passed_by` is the file that passes the address of the workers' Ray to the engine process, "" if nothing
    does.

    `unsure` is when that file does not, or why it is unknown whether a file does, "" if it is certain.
    `joins` is the address that Ray uses if none is passed, "" if it starts a new Ray, and `given_by` what
    names it. `because` is why nothing passes it. `job` is the address of the workers' cluster, "" if the job
    starts its own, and "auto" if a cluster exists at an unknown address.
    """

    passed_by: str = ""
    unsure: str = ""
    joins: str = ""
    given_by: str = ""
    because: str = ""
    job: str = ""

    @property
    def strays(self) -> bool:
        """Whether the engine process joins another Ray than its workers' if no address is passed."""
        return not self.joins or not (AUTO in (self.joins, self.job) or same_ray(self.joins, self.job))

    @property
    def astray(self) -> bool:
        """Whether it certainly joins another Ray."""
        return self.strays and not self.passed_by and not self.unsure


def same_ray(first: str, other: str) -> bool:
    """Return whether two addresses may belong to one GCS: a name, or loopback, may stand for any host."""
    (host, _, port), (another, _, its_port) = first.rpartition(":"), other.rpartition(":")
    vague = not (is_address(host) and is_address(another)) or "127.0.0.1" in (host, another)
    return port == its_port and (host == another or vague)


@collector()
def engine_reach(
    engine: EngineRay,
    environment: EffectiveEnvironment,
    launch: Launch | Unknown,
    raylets: Raylets | Unknown,
    machine: Machine,
) -> EngineReach | Unknown:
    """Follow the environment of the actor that starts the engine process, and what Ray makes of it there."""
    if not all(_holds(choice, environment) for choice in engine.chosen_by):
        names = " and ".join(f"{choice.variable}={choice.value}" for choice in engine.chosen_by)
        return Absent(f"this engine process is only used with {names}")
    before = [choice for choice in engine.vllm_unless if _holds(choice, environment)]
    reach = EngineReach(
        engine.path if engine.address_given else "" if before else engine.vllm, job=environment.standing
    )
    if engine.vllm_after and not engine.address_given and not before:
        reach = replace(reach, unsure=f"vLLM does not where {' or '.join(engine.vllm_after)} before")
    elif engine.vllm_unknown and not engine.address_given:
        reach = replace(reach, unsure=f"it is unknown whether vLLM does: {engine.vllm_unknown}")
    elif reach.passed_by:
        return reach
    elif before:
        reach = replace(
            reach, because=f"vLLM does not where {before[0].variable} is {before[0].value} already"
        )
    else:
        reach = replace(reach, because="this vLLM never does")
    if _writes_address(launch, environment):
        return replace(reach, joins=AUTO, given_by="the address file that ray start writes")
    return _left_to_ray(reach, engine, environment, raylets, machine)


def _left_to_ray(
    reach: EngineReach,
    engine: EngineRay,
    environment: EffectiveEnvironment,
    raylets: Raylets | Unknown,
    machine: Machine,
) -> EngineReach | Unknown:
    """Add what `ray.init` chooses by default in the engine process, which has its parent's environment."""
    from verl_doctor.toolkit.collectors.variables.ray_environment import address, address_file  # noqa: PLC0415 - it reads verl's sources

    seen = {name: environment.worker(name) for name in _READ_BY_RAY}
    if undetermined := [name for name, value in seen.items() if value.undetermined]:
        return Unknown(f"{undetermined[0]} of Ray's workers: {seen[undetermined[0]].undetermined}")
    environ = {name: value.text for name, value in seen.items() if value.text}
    given_address = _constant(engine.address)
    if given_address is None:
        return Unknown(f"the address that {engine.path} gives in line {engine.line} is {engine.address}")
    joins, given_by = address(given_address or None, environ, machine), ""
    if environ.get("RAY_ADDRESS", AUTO) != AUTO:
        given_by = "RAY_ADDRESS of Ray's workers"
    elif joins:
        given_by = address_file(environ)
        if AUTO in (given_address, environ.get("RAY_ADDRESS")):
            joins, given_by = _any_here(joins, given_by, environment.standing, raylets)
    return replace(reach, joins=joins, given_by=given_by)


def _any_here(named: str, given_by: str, job: str, raylets: Raylets | Unknown) -> tuple[str, str]:
    """Return what "auto" picks: the only Ray here, among several the one in the address file, or any."""
    running = () if isinstance(raylets, Unknown) else raylets.running
    others = sorted(
        {raylet.cluster for raylet in running if raylet.cluster and not same_ray(raylet.cluster, job)}
    )
    if not others:
        return AUTO, ""
    return (others[0], "the raylets that run here") if named == AUTO else (named, given_by)


def _writes_address(launch: Launch | Unknown, environment: EffectiveEnvironment) -> bool:
    """Return whether the launch script starts Ray, which writes the address file where its workers look."""
    starts = () if isinstance(launch, Unknown) else launch.ray_starts
    elsewhere = any(option(words, "--temp-dir") for words in starts)
    return environment.by_script and not elsewhere and environment.worker("RAY_ADDRESS").is_set is False


def _constant(text: str) -> str | None:
    """Evaluate a string's source, "" for none, None for an expression that cannot be evaluated."""
    if not text:
        return ""
    node = parse_expression(text)
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ""
        if isinstance(node, ast.Constant) and node.value is None
        else None
    )


def _holds(choice: Choice, environment: EffectiveEnvironment) -> bool:
    """Return whether a variable has a value in the actor; false if unknown."""
    value = environment.worker(choice.variable)
    return not value.undetermined and (choice.default if value.text is None else value.text) == choice.value
