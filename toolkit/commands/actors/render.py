"""The placement of actors, for a terminal and as Markdown."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.text import Text

from verl_doctor.toolkit.collectors.gpu.gpus import Device
from verl_doctor.toolkit.collectors.ray.state import RayJob
from verl_doctor.toolkit.collectors.ray.worker_groups import WorkerGroup
from verl_doctor.toolkit.commands.actors import document as words
from verl_doctor.toolkit.commands.actors.placement import ClusterView, Occupant, Placement
from verl_doctor.toolkit.console.markdown_text import escaped
from verl_doctor.toolkit.text import harmless, in_bytes, in_time, wrapped

_STYLES = {
    "WHOLE": "bold green",
    "NO GROUPS": "bold green",
    "NO ACTORS": "bold green",
    "WAITING": "bold yellow",
    "LEFT BEHIND": "bold yellow",
    "BROKEN": "bold red",
    "UNKNOWN": "bold magenta",
}
_MIB = 1024 * 1024
_MOST = 8
_Line = tuple[int, str]  # indentation, and text


def text_lines(found: Placement, width: int | None, *, every: bool) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe."""
    word, sentence = words.headline(found)
    first, *rest = wrapped(f"{word}  {harmless(sentence)}", width, hanging="  ")
    yield Text.assemble((word, _STYLES[word]), first.removeprefix(word))
    yield from map(Text, rest)
    for depth, text in _lines(found, every=every):
        indent = "  " * depth
        yield from map(Text, wrapped(harmless(text), width, indent=indent, hanging=f"{indent}  "))


def markdown_lines(found: Placement, *, every: bool) -> Iterator[str]:
    """Yield the lines of a Markdown page."""
    word, sentence = words.headline(found)
    yield f"## verl-doctor actors: {word.lower()}"
    yield ""
    yield escaped(harmless(sentence))
    yield ""
    for depth, text in _lines(found, every=every):
        yield f"{'  ' * (depth - 1)}* {escaped(harmless(text))}"


def _lines(found: Placement, *, every: bool) -> Iterator[_Line]:
    if not found.clusters and not found.occupants:
        return
    if not words.undetermined(found):  # which is the headline
        for view in found.clusters:
            yield from _of_cluster(view, every=every)
        if found.no_ray:
            yield 1, f"Ray: {found.no_ray.reason}"
    for device, occupants in found.occupants:
        yield from _of_gpu(device, occupants)
    if found.no_gpus:
        yield 1, f"GPUs: {found.no_gpus.reason}"


def _of_cluster(view: ClusterView, *, every: bool) -> Iterator[_Line]:
    cluster = view.cluster
    if cluster.refused:
        yield 1, f"the Ray at {cluster.address} could not be read: {cluster.refused}"
        return
    yield (
        1,
        f"the Ray at {cluster.address}"
        + (f"; not read: {', '.join(cluster.unread)}" if cluster.unread else ""),
    )
    jobs = list(words.jobs(view))
    if not jobs:
        yield 2, "no job is connected, and there are no actors"
    for job in jobs:
        yield 2, _job(job)
        mine = [
            group
            for group in view.groups
            if group.job == job.job and (every or not (group.over and job.finished))
        ]
        for group in mine:
            yield from _of_group(group, view, every=every)
        for unplaced in words.waiting(view):
            if unplaced.job == job.job:
                yield (
                    3,
                    f"waiting: placement group {unplaced.name or unplaced.group}, {words.bundles(unplaced)}",
                )
        if rest := words.other_actors(view, job.job):
            yield 3, f"{'other actors' if mine else 'actors'}: {rest}"
    if any(actor.detached and actor.state != "DEAD" for actor in cluster.actors):
        yield 2, words.HANDLES


def _job(job: RayJob) -> str:
    if not job.pid:
        return f"job {job.job}, which the GCS no longer lists"
    since = f", for {in_time(max(time.time() - job.started, 0.0))}" if job.started else ""
    ended = f", ended {in_time(max(time.time() - job.ended, 0.0))} ago" if job.ended else ", ended"
    return f"job {job.job}{ended if job.finished else since}: driver {job.pid} on {job.address}"


def _of_group(group: WorkerGroup, view: ClusterView, *, every: bool) -> Iterator[_Line]:
    yield 3, f"{group.name}: {words.roles(group)}; {words.summary(group)}"
    for numbers, story in words.troubled(group):
        yield 4, f"{numbers} {story}"
    places = list(words.on_nodes(group))
    shown = places if every else places[:_MOST]
    for place in shown:
        yield 4, place
    if len(places) > len(shown):
        yield 4, f"and on {len(places) - len(shown)} more nodes (-v shows all)"
    if kept := words.kept_by(group, view):
        yield 4, kept


def _of_gpu(device: Device, occupants: tuple[Occupant, ...]) -> Iterator[_Line]:
    memory = device.memory
    used = f": {in_bytes(memory.used * _MIB)} of {in_bytes(memory.total * _MIB)} in use" if memory else ""
    yield 1, f"GPU {device.index} {device.name}{used}{device.trouble and f': {device.trouble}'}"
    for occupant in occupants:
        holds = "" if occupant.holder.memory is None else f", {in_bytes(occupant.holder.memory * _MIB)}"
        yield 2, f"process {occupant.holder.pid}{holds}: {words.role(occupant)}{_job_of(occupant)}"
    if device.unattributed and memory and not occupants and device.unattributed > 1024:
        yield 2, "held by processes that are not visible from here"


def _job_of(occupant: Occupant) -> str:
    if occupant.seat is None:
        return ""
    job = occupant.seat.actor.job
    return f", job {job}" + (", which has ended" if occupant.seat.job_ended else "")
