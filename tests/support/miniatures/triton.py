"""A miniature of Triton's way to its launchers: it looks for libcuda, and calls a compiler."""

from __future__ import annotations

from pathlib import Path

DRIVER = '''
import functools
import os
import subprocess
from triton import knobs
from triton.runtime.build import compile_module_from_src

here = os.path.dirname(os.path.realpath(__file__))
include_dirs = [os.path.join(here, "include")]
libdevice_dir = os.path.join(here, "lib")
libraries = ["{library}"]
TEMPLATE = """
#include "cuda.h"
#include <Python.h>
{include}
"""

class Utils:
    raise RuntimeError("this needs a GPU")

@functools.lru_cache()
def libcuda_dirs():
    if chosen := knobs.nvidia.libcuda_path:
        return [chosen]
    listed = subprocess.check_output(["{ldconfig}", "-p"]).decode()
    found = [os.path.dirname(line.split()[-1]) for line in listed.splitlines() if "libcuda.so.1" in line]
    assert found, "libcuda.so cannot found!"
    return found
'''

BUILD = """
from __future__ import annotations
import os
import shutil
import subprocess
import sysconfig
from .. import knobs
from .cache import get_cache_manager

def _build(name: str, src: str, srcdir: str, library_dirs: list[str], include_dirs: list[str], libraries: list[str], ccflags: list[str]) -> str:
    if impl := knobs.build.impl:
        return impl(name)
    cc = os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")
    if cc is None:
        raise RuntimeError("Failed to find C compiler.")
    out = os.path.join(srcdir, name + ".so")
    command = [cc, src, "-shared", "-fPIC", "-o", out, *map(_flag, libraries)]
    command += ["-L" + folder for folder in library_dirs]
    command += ["-I" + folder for folder in [*include_dirs, srcdir, sysconfig.get_paths()["include"]]]
    subprocess.check_call([*command, *ccflags], stdout=subprocess.DEVNULL)
    return out

def _flag(library):
    return "-l:" + library if ".so" in library else "-l" + library
"""

KNOBS = """
from triton._C.libtriton import getenv

class env_opt_str:
    def __init__(self, key): ...

class nvidia_knobs:
    libcuda_path: env_opt_str = env_opt_str("TRITON_LIBCUDA_PATH")

class build_knobs:
    impl = None
"""


def write_triton(
    site: Path, *, library: str = "cuda", include: str = "", ldconfig: str = "/bin/true"
) -> Path:
    """Write it into a folder of packages. `ldconfig` is the program that it runs for the loader's cache."""
    folder = site / "triton"
    texts = {
        "__init__.py": "raise RuntimeError('it must not be imported')",
        "backends/nvidia/driver.py": DRIVER.replace("{library}", library)
        .replace("{include}", include)
        .replace("{ldconfig}", ldconfig),
        "backends/nvidia/include/cuda.h": "",
        "runtime/build.py": BUILD,
        "knobs.py": KNOBS,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
