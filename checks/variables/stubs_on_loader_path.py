"""ENV105: LD_LIBRARY_PATH contains CUDA's stub libraries."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda, Library
from verl_doctor.toolkit.collectors.cuda.library_path import LibraryPath, StubFolder
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_FOLDER = "/usr/local/cuda/lib64/stubs"
_NO_GPU = (LibCuda, Unknown("no GPU"))
_BEHIND = LibCuda(candidates=(Library("/drv/libcuda.so.1"), Library(f"{_FOLDER}/libcuda.so.1", stub=True)))
_LOADED = LibCuda(candidates=(Library(f"{_FOLDER}/libcuda.so.1", stub=True),))


def _examples() -> list[Example]:
    return [
        Example("no stubs on the path", (LibraryPath(), _NO_GPU)),
        Example(
            "in a launch script",
            (LibraryPath((StubFolder(folder=_FOLDER, path="/home/me/run.sh", line=9),)), _NO_GPU),
            "the loader's path",
        ),
        Example(
            "with the name that the loader searches for",
            (LibraryPath((StubFolder(_FOLDER, loadable=True),)), _NO_GPU),
            "instead of the driver",
        ),
        Example(
            "after the driver's",
            (LibraryPath((StubFolder(_FOLDER, loadable=True),)), _BEHIND),
            "only /drv before it",
        ),
        Example(
            "it is loaded, which CUDA102 reports",
            (LibraryPath((StubFolder(_FOLDER, loadable=True),)), _LOADED),
        ),
    ]


@check("ENV105", phase="workers", severity="warning", examples=_examples)
def stubs_on_loader_path(library_path: LibraryPath, libcuda: LibCuda | Unknown) -> Iterator[Finding]:
    """LD_LIBRARY_PATH contains CUDA's stub libraries.

    ## Why it matters

    This is often meant to cure `cannot find -lcuda` while Triton compiles, but it does not help: that message
    comes from the linker, which searches LIBRARY_PATH, whereas LD_LIBRARY_PATH is for the loader. (Only
    Triton 2.2 and 2.3 also looked for `libcuda.so` there, if ldconfig listed none: triton-lang/triton#2883.)
    A stub has the driver's functions without their code. If the folder also contains a `libcuda.so.1`, which
    some images link there, processes load it instead of the driver and see no GPU: `CUDA driver is a stub
    library`.

    ## How to fix

    Remove the folder from LD_LIBRARY_PATH. To cure `cannot find -lcuda`, add it to LIBRARY_PATH, or set
    TRITON_LIBCUDA_PATH to a folder whose `libcuda.so` links to the driver's `libcuda.so.1`.
    """
    loaded = None if isinstance(libcuda, Unknown) else libcuda.loaded
    for stub in library_path.stubs:
        if loaded is not None and loaded.stub and loaded.folder == stub.folder.rstrip("/"):
            continue  # CUDA102 reports the consequences
        harmful = stub.loadable and (loaded is None or loaded.stub)
        yield Finding(
            (
                f"{stub.folder} is in LD_LIBRARY_PATH, the loader's path, but contains stubs for the "
                f"linker: {_effect(stub, loaded)}"
            ),
            Evidence(
                found=f"{stub.folder} in LD_LIBRARY_PATH" + ("" if stub.path else " of this shell"),
                wanted="LIBRARY_PATH for the linker",
            ),
            subject=Subject("variable", "LD_LIBRARY_PATH", stub.folder),
            location=Location(stub.path, stub.line) if stub.path else None,
            remedy="remove it from LD_LIBRARY_PATH; for the linker add it to LIBRARY_PATH",
            severity="error" if harmful else None,
            fix=_fix(stub.path),
        )


def _fix(path: str) -> str | None:
    """The fix that removes it from a file; no fix can remove it from the shell."""
    if not path:
        return None
    return "stubs-off-loader-path-in-source" if path.endswith(".py") else "stubs-off-loader-path"


def _effect(stub: StubFolder, loaded: Library | None) -> str:
    """The effect of the folder on the path."""
    if not stub.loadable:
        return "this does not help against 'cannot find -lcuda'"
    if loaded is None or loaded.stub:
        return "its libcuda.so.1 is loaded instead of the driver"
    return f"only {loaded.folder} before it keeps its libcuda.so.1 from being loaded"
