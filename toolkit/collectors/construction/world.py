"""One rank of all GPUs of the job: its meshes, and the bytes that it keeps of each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Away = Literal["no", "between", "always"]
"""When something is in host memory: never, while it is not in use, or always (FSDP's own offload)."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of a device mesh."""

    name: str
    size: int


@dataclass(frozen=True)
class Mesh:
    """A division of the GPUs for one purpose: "actor", "actor, sequences", "rollout"."""

    name: str
    dimensions: tuple[Dimension, ...]

    def __str__(self) -> str:
        return (
            f"{self.name} {' x '.join(f'{dimension.name} {dimension.size}' for dimension in self.dimensions)}"
        )


@dataclass(frozen=True)
class Share:
    """What rank 0 keeps of one model that is trained or only read, in bytes.

    `shards` is the number of ranks over which each weight is sharded, in `units` of FSDP. `states` are the
    optimizer's, None if it does nothing without a GPU; `temporary` is what it allocates during a step.
    `gathered` is the part of the full weights that exists at once while the model works.
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
        """Bytes on the GPU while this model is not in use."""
        return self.weights * (self.weights_away == "no") + (self.states or 0) * (self.states_away == "no")

    @property
    def at_start(self) -> int:
        """Bytes on the GPU before the first step.

        A single rank of FSDP's first version moves offloaded weights to host memory only with the first batch
        (measured with verl 0.9.1 on an H100).
        """
        lingers = self.strategy == "fsdp" and self.shards == 1
        return self.weights * (self.weights_away == "no" or (self.weights_away == "always" and lingers))

    @property
    def working(self) -> int:
        """Bytes on the GPU at the computable peak: in the optimizer's step, or while gathering weights."""
        if self.weights_away == "always":
            return self.gathered
        own = self.weights + (self.states or 0)
        return max(own + self.gradients + self.temporary, own + self.gathered)


@dataclass(frozen=True)
class Engine:
    """What the rollout's engine keeps on each of its GPUs: weights, and one token's cache.

    Both are in bytes, None if their types are unknown. `share` is the part of a GPU's memory that it may
    take, `longest` the tokens of one sequence, 0 if unknown. `apart`: it has its own GPUs; `sleeps`: it frees
    its memory while the trainer works.
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
        """The minimum with which it starts: its weights, and room for one sequence."""
        return None if self.weights is None else self.weights + (self.token or 0) * self.longest


@dataclass(frozen=True)
class World:
    """The job's `size` GPUs on `nodes` nodes. `how` names the code that distributed the models over them."""

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
        """The trainer's bytes on each GPU when the engine starts."""
        return sum(share.at_start for share in self.shares)

    def working(self, share: Share) -> int:
        """Return the bytes on each GPU while one model works, including what the others keep there."""
        return share.working + self.resident - share.resident


def read(reported: Mapping[str, Any] | None) -> World | None:
    """Return the world that the child reported; None if it created none."""
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
