"""The attention backends of the installed vLLM, and how it treats the names that the user requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """One name of vLLM's enumeration.

    `path` is the dotted name of its class, empty if there is none. `problem` is why that class is missing,
    empty if it exists or that is unknown. `alias_of` is the earlier name with the same value: Python's `Enum`
    makes the two identical. `platforms` are those of vLLM's platform modules that mention the name.

    The following is read only for requested names. `supports_head_size`, `is_mla` and `is_sparse` are what
    the class's own methods return for the model, `supports_device` what they return for the GPU; None if
    unknown. `head_sizes` is its list, if it has one. `lacks` are packages that its module imports and that
    are not installed with vLLM.
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
    """The attention backends, according to vLLM's sources.

    `registry`: the enumeration holds class paths (0.11.1 and later); before, each platform decides by name.
    `platform` is the one that this installation is built for, empty if unknown. `variable_is_read`:
    VLLM_ATTENTION_BACKEND has an effect at all; `variable_is_checked`: an unknown value raises.
    `variable_sets_option`: it is copied over the option, so that both together raise. `old_engine_unless` are
    the values that keep the V1 engine, if vLLM still has both engines. `options` are the existing engine
    arguments. `automatic` is a value for "no choice", if there is one. `head_size` is the model's, 0 if
    unknown; `capability` the GPUs' ("9.0"), empty if unknown.
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
        """Return the backend of this name."""
        return next((backend for backend in self.backends if backend.name == name), None)

    def is_usable(self, backend: Backend) -> bool:
        """Return whether there is no known obstacle to using this backend here."""
        return (
            not backend.problem
            and (bool(backend.path) or not self.registry)
            and (not self.platform or self.platform in backend.platforms)
            and (not self.old_engine_unless or backend.name in self.old_engine_unless)
        )

    @property
    def usable(self) -> tuple[str, ...]:
        """Return the names that can be used here."""
        return tuple(backend.name for backend in self.backends if self.is_usable(backend))
