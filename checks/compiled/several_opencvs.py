"""CUDA116: several distributions of OpenCV share one folder."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_NAMES = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)


def _installed(*names: str) -> Packages:
    return Packages(
        tuple(
            Distribution(name=name, version="4.12.0.88", location=f"/env/{name}.dist-info") for name in names
        )
    )


def _examples() -> list[Example]:
    return [
        Example("none", (_installed("torch"),)),
        Example("a single OpenCV", (_installed("opencv-python-headless"),)),
        Example(
            "two distributions of OpenCV",
            (_installed("opencv-python", "opencv-python-headless"),),
            "opencv-python-headless and opencv-python",
        ),
    ]


@check("CUDA116", severity="warning", requires={"PY100"}, examples=_examples)
def several_opencvs(packages: Packages) -> Iterator[Finding]:
    """Several distributions of OpenCV share one folder.

    ## Why it matters

    All of them install the package `cv2`: the last one overwrote the files of the others, and removing one
    breaks the rest (`module 'cv2' has no attribute ...`). Those without "headless" need `libGL.so.1`, which
    servers usually lack.

    ## How to fix

    Remove all of them, then install one: vLLM requires `opencv-python-headless`, which is enough on a server.
    """
    installed = [found for name in _NAMES if (found := packages.get(name)) is not None]
    if len(installed) < 2:
        return
    names = [distribution.name for distribution in installed]
    # The "contrib" variant contains everything in the other, so it serves all dependents.
    base = (
        "opencv-contrib-python-headless"
        if any("contrib" in name for name in names)
        else "opencv-python-headless"
    )
    kept = next((distribution for distribution in installed if distribution.name == base), None)
    yield Finding(
        f"{' and '.join(names)} are installed into the same folder cv2",
        Evidence(
            found=", ".join(f"{distribution.name} {distribution.version}" for distribution in installed),
            wanted="one of them",
            read_from="the installed distributions",
        ),
        location=Location(installed[0].location),
        remedy=f"pip uninstall -y {' '.join(names)} && pip install {base}"
        + (f"=={kept.version}" if kept else ""),
        subject=Subject("package", names[0], ",".join(names[1:])),
        fix="consistent-install",
    )
