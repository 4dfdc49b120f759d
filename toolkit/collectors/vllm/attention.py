"""The attention backends of the vLLM that is there, and how it treats the names that the user asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """One name of vLLM's enumeration.

    `path` is the dotted name of its class, empty when there is none. `problem` says why that class is not there, empty
    when it is or cannot be told. `alias_of` is the earlier name with the same value: for Python's `Enum` the two are one.
    `platforms` are those of vLLM's platform modules that mention the name.

    What follows is read only for names that are asked for. `supports_head_size`, `is_mla` and `is_sparse` are what the class's
    own methods answer for the model at hand, `supports_device` what they answer for the GPU; None when that cannot be told.
    `head_sizes` is its list, if it has one.
    `lacks` are packages that its module imports and that are not installed beside vLLM.
    """

    name: str
    path: str = ""
    problem: str = ""
    alias_of: str = ""
    platforms: tuple[str, ...] = ()
    supports_head_size: bool | None = None
    head_sizes: tuple[int, ...] = ()
    is_mla: bool | None = None
    is_sparse: bool | None = None
    supports_device: bool | None = None
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttentionBackends:
    """What vLLM's sources say.

    `registry`: the enumeration holds class paths (0.11.1 and later); before, each platform decides by name. `platform` is
    the one that this installation is built for, empty when that cannot be told. `variable_is_read`: VLLM_ATTENTION_BACKEND
    matters at all; `variable_is_checked`: an unknown value raises. `variable_sets_option`: it is copied over the option, so
    that both together raise. `old_engine_unless` are the values that keep the V1 engine, where vLLM still has both engines.
    `options` are the engine arguments that exist. `automatic` is a value that stands for no choice, where there is one.
    `head_size` is that of the model, 0 when it is not known; `capability` that of the GPUs ("9.0"), empty when it is not.
    """

    version: str
    read_from: str
    registry: bool
    backends: tuple[Backend, ...]
    platform: str = ""
    variable_is_read: bool = False
    variable_is_checked: bool = False
    variable_sets_option: bool = False
    old_engine_unless: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    automatic: str = ""
    head_size: int = 0
    capability: str = ""

    def get(self, name: str) -> Backend | None:
        """The backend of this name."""
        return next((backend for backend in self.backends if backend.name == name), None)

    def is_usable(self, backend: Backend) -> bool:
        """Whether nothing is known against naming this one here."""
        return (
            not backend.problem
            and (bool(backend.path) or not self.registry)
            and (not self.platform or self.platform in backend.platforms)
            and (not self.old_engine_unless or backend.name in self.old_engine_unless)
        )

    @property
    def usable(self) -> tuple[str, ...]:
        """The names that can be written here."""
        return tuple(backend.name for backend in self.backends if self.is_usable(backend))
