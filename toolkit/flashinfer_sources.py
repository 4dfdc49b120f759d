"""Which headers of a CUDA toolkit FlashInfer's sampler includes, followed through the sources that FlashInfer brings along.

What stands under a condition may not be wanted from this toolkit, and does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

# flashinfer/jit/sampling.py
_SAMPLER = ("sampling.cu", "renorm.cu", "flashinfer_sampling_binding.cu")
_DIRECTIVE = re.compile(r"^\s*#\s*(if|ifdef|ifndef|endif|include)\b(?:\s*[<\"]([^>\"]+)[>\"])?", re.MULTILINE)
# Those of CUDA itself: cuda_runtime.h, curand_kernel.h. The C++ libraries of CUDA come with FlashInfer.
_OF_CUDA = re.compile(r"cu\w+\.h")


def cuda_headers(data: Path) -> tuple[str, ...]:
    """The names, sorted. `data` is FlashInfer's folder of sources."""
    roots = (data / "include", data / "csrc")
    todo = [data / "csrc" / name for name in _SAMPLER]
    seen: set[Path] = set()
    outside: set[str] = set()
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _included(file):
            here = (folder / name for folder in (file.parent, *roots))
            own = next(filter(Path.is_file, here), None)
            if own is not None:
                todo.append(own.resolve())
            elif _OF_CUDA.fullmatch(name):
                outside.add(name)
    return tuple(sorted(outside))


def _included(file: Path) -> Iterator[str]:
    """The names that a source includes under no condition but its own include guard."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return
    directives = list(_DIRECTIVE.finditer(text))
    depth = -1 if directives and directives[0][1] == "ifndef" else 0
    for directive in directives:
        if directive[1] == "include":
            if depth == 0 and directive[2]:
                yield directive[2]
        else:
            depth += -1 if directive[1] == "endif" else 1
