"""Fix for CUDA105: a folder in which Triton and the linker find the driver's library."""

from __future__ import annotations

from verl_doctor.patches.shared.driver_links import link_folder, links
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.kernels.triton_build import LIBCUDA_PATH, TritonBuild
from verl_doctor.toolkit.rule import Finding


@fix(
    "libcuda-link",
    repairs="CUDA105",
    safety="safe",
    upstream="triton-lang/triton#2582, which reads TRITON_LIBCUDA_PATH",
    restart="Ray and the job",
)
def libcuda_link(_: Finding, libcuda: LibCuda, build: TritonBuild) -> list[Change] | Refusal:
    """Make a folder with links to the driver's library, and let Triton and the linker search it.

    The folder is in the user's data folder (`~/.local/share/verl-doctor/libcuda`), so no root is needed. It
    is no stub: the library used for linking is the one loaded later.
    """
    own = libcuda.drivers_own
    if own is None:
        return Refusal("the driver's own library is not on this machine")
    if build.lookup_error and not build.reads_variable:
        return Refusal(
            f"this Triton only searches the list of ldconfig and does not read {LIBCUDA_PATH}: let root "
            f"create the link {own.folder}/libcuda.so -> {own.path} and run ldconfig, or install a "
            "newer Triton"
        )
    folder = str(link_folder(own))
    why = f"Triton must find {own.path} to compile its launchers"
    variables = [SetVariable(LIBCUDA_PATH, folder, why, node_only=True)] if build.reads_variable else []
    why = f"with it, -lcuda finds {own.path}"
    return [*links(own), *variables, SetVariable("LIBRARY_PATH", folder, why, prepend=True, node_only=True)]
