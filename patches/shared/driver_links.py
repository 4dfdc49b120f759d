"""The user's own folders of links by which linker or loader find the driver's library and nothing else."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from verl_doctor.toolkit.change import Change, NewLink, Refusal, SetVariable
from verl_doctor.toolkit.collectors.cuda.libcuda import SONAME, LibCuda, Library

_LINKERS_NAME = "libcuda.so"


def link_folder(own: Library) -> Path:
    """Return the folder of links to one driver's library.

    It is in the user's data folder, and is named after the driver's folder.
    """
    return platformdirs.user_data_path("verl-doctor") / "libcuda" / own.folder.strip("/").replace("/", "-")


def links(own: Library) -> list[Change]:
    """Return the links under both names, `libcuda.so` and `libcuda.so.1`.

    The first is for `-lcuda`, the second for `-l:libcuda.so.1` and the loader.

    They point to the file name that survives a driver update.
    """
    folder = link_folder(own)
    return [NewLink(folder / name, Path(own.path)) for name in (_LINKERS_NAME, SONAME)]


def loaded_first(libcuda: LibCuda, why: str) -> list[Change] | Refusal:
    """Make every process load the driver's own library: its folder comes first in LD_LIBRARY_PATH.

    Putting the system folder first would also put its other libraries first; a folder of links does not.
    """
    own = libcuda.drivers_own
    if own is None:
        return Refusal("the driver's own library is not on this machine")
    made = links(own) if own.among_others else []
    folder = str(link_folder(own)) if own.among_others else own.folder
    return [*made, SetVariable("LD_LIBRARY_PATH", folder, why, prepend=True, node_only=True)]
