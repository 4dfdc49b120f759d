"""One rank of all GPUs of the job: the meshes it belongs to, and the bytes it keeps of each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Away = Literal["no", "between", "always"]
"""When something lies in the host's memory: never, while it is not worked on, or always (FSDP's own offload)."""


@dataclass(frozen=True)
class Dimension:
    """One dimension of a mesh of devices."""

    name: str
    size: int


@dataclass(frozen=True)
class Mesh:
    """How the GPUs are divided for one purpose: "actor", "actor, sequences", "rollout"."""

    name: str
    dimensions: tuple[Dimension, ...]

    def __str__(self) -> str:
        return (
            f"{self.name} {' x '.join(f'{dimension.name} {dimension.size}' for dimension in self.dimensions)}"
        )


@dataclass(frozen=True)
class Share:
    """What rank 0 keeps of one model that is trained or only read, in bytes.

    `shards` is over how many ranks each weight is spread, in `units` of FSDP. `states` are the optimizer's, None where it is one that
    does nothing without a GPU; `temporary` is what it makes for the length of a step. `gathered` is what of the whole weights is there at
    once while the model works.
    """

    name: str
    strategy: str
    shards: int
    units: int
    weights: int
    gradients: int = 0
    states: int | None = 0
    temporary: int = 0
    gathered: int = 0
    weights_away: Away = "no"
    states_away: Away = "no"

    @property
    def resident(self) -> int:
        """On the GPU while this model is not worked on."""
        return self.weights * (self.weights_away == "no") + (self.states or 0) * (self.states_away == "no")

    @property
    def at_start(self) -> int:
        """On the GPU before the first step.

        One rank of FSDP's first version moves weights that are to be in the host's memory there with the first batch (measured with
        verl 0.9.1 on an H100).
        """
        lingers = self.strategy == "fsdp" and self.shards == 1
        return self.weights * (self.weights_away == "no" or (self.weights_away == "always" and lingers))

    @property
    def working(self) -> int:
        """On the GPU at the fullest moment that can be computed: while the optimizer takes its step, or the weights are gathered."""
        if self.weights_away == "always":
            return self.gathered
        own = self.weights + (self.states or 0)
        return max(own + self.gradients + self.temporary, own + self.gathered)

    @property
    def in_host_memory(self) -> int:
        """What this rank keeps in the host's memory while the model is not worked on."""
        grads = self.gradients * (self.weights_away == "always")
        return (
            self.weights * (self.weights_away != "no")
            + (self.states or 0) * (self.states_away != "no")
            + grads
        )


@dataclass(frozen=True)
class Engine:
    """What the rollout's engine keeps on one of its GPUs, in bytes, None where its types are not known: weights, and one token's cache.

    `share` is the part of a GPU's memory that it may take, `longest` the tokens of one sequence, 0 where not known. `apart` says that it has
    GPUs of its own, `sleeps` that it gives its memory back while the trainer works.
    """

    name: str
    tensor_parallel: int
    pipeline_parallel: int
    weights: int | None
    token: int | None
    longest: int
    share: float
    apart: bool
    sleeps: bool

    @property
    def least(self) -> int | None:
        """With less it does not start: its weights, and room for one sequence."""
        return None if self.weights is None else self.weights + (self.token or 0) * self.longest


@dataclass(frozen=True)
class World:
    """`size` GPUs on `nodes` nodes. `how` says whose code laid the models over them."""

    size: int
    nodes: int
    how: str
    meshes: tuple[Mesh, ...]
    shares: tuple[Share, ...]
    engine: Engine

    @property
    def resident(self) -> int:
        """The trainer's bytes on each GPU while the rollout works."""
        return sum(share.resident for share in self.shares)

    @property
    def at_start(self) -> int:
        """The same when the engine starts."""
        return sum(share.at_start for share in self.shares)

    def working(self, share: Share) -> int:
        """The bytes on each GPU while one model is worked on, with what the others keep there."""
        return share.working + self.resident - share.resident


def read(reported: Mapping[str, Any] | None) -> World | None:
    """The world that the child told; None where it made none."""
    if reported is None:
        return None
    meshes = tuple(
        Mesh(mesh["name"], tuple(Dimension(name, size) for name, size in mesh["dimensions"].items()))
        for mesh in reported["meshes"]
    )
    shares = tuple(Share(**share) for share in reported["shares"])
    return World(
        reported["size"], reported["nodes"], reported["how"], meshes, shares, Engine(**reported["engine"])
    )
