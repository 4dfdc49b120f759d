"""Fix for CUDA105 if the job's environment cannot be changed.

Instead, verl's own package sets the folder with libcuda for Triton.

It replaces a stubs folder in LD_LIBRARY_PATH, the loader's path, which a running process never reads again.
"""

from __future__ import annotations

import ast

from verl_doctor.patches.shared.driver_links import link_folder, links
from verl_doctor.patches.shared.edited_files import edited_sources
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.kernels.triton_build import LIBCUDA_PATH
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText

CODE = "CUDA105"


@fix(
    "libcuda-in-source",
    repairs=CODE,
    safety="unsafe",
    upstream="triton-lang/triton#2582, which reads TRITON_LIBCUDA_PATH",
    needed="nodes where Triton does not find libcuda and the workers' environment cannot be set",
    restart="running Ray workers, which keep the old code",
)
def libcuda_in_source(
    _: Finding,
    libcuda: LibCuda,
    rollout: RolloutModule,
    job: JobVariables,
    sources: SourceFiles,
    marker: Marker,
) -> list[Change] | Refusal:
    """Let verl's vLLM package set the folder with libcuda for Triton.

    Unsafe because the path is valid on this machine, and others may use the same tree. A value in the
    environment takes precedence.
    """
    own = libcuda.drivers_own
    if own is None:
        return Refusal("the driver's own library is not on this machine")
    if job.has(LIBCUDA_PATH):
        return Refusal(
            f"{LIBCUDA_PATH} is set in the environment, which takes precedence over what verl sets"
        )

    def naming(source: SourceText) -> bytes:
        statement = f'os.environ.setdefault("{LIBCUDA_PATH}", {str(link_folder(own))!r})'
        first, *others = _statements(source)
        if others and isinstance(first, ast.Import) and source.of(first) == "import os":
            at, lines = source.start(others[0]), [statement, ""]
        else:
            at, lines = source.start(first), ["import os", statement, ""]
        return source.edited([Edit(at, at, source.newline.join(lines))], marker.comment(CODE))

    changes = edited_sources([rollout.path], sources, naming)
    return changes if isinstance(changes, Refusal) else [*links(own), *changes]


def _statements(source: SourceText) -> list[ast.stmt]:
    """Return the statements after the docstring and the imports that must come first. Raises CannotEdit."""
    found = [
        node
        for node in source.tree.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    if not found:
        raise CannotEdit(f"{source.path} contains no code")
    for node in found[:2]:
        if not source.is_alone(node):
            raise CannotEdit(f"{source.path}:{node.lineno}: there is other code on this line")
    return found
