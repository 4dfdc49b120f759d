"""RAY106: the cluster requires a token, but the job would not send one."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import a_cluster, finding_its_place, joins, ray_place
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.collectors.ray.addresses import Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.collectors.ray.token import RayToken
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_NAMED = RayAddresses((ray_place(),))
_FOUND = RayAddresses((ray_place(source="address file"),))
_THERE = RayToken(path="/home/me/.ray/auth_token", by_itself=True)
_LOCKED = joins(a_cluster(token=True))
_REFUSED = joins(a_cluster(token=True, refused="AuthenticationError: InvalidAuthToken"))
_VARIABLE = "RAY_AUTH_MODE"
_NONE = (RayClusters, Absent("no Ray responds at any address known here"))
_NO_SCRIPT = (RayStarts, Absent("no launch script was named"))
_START = RayAddresses((ray_place(source="ray start --head", reply="refused"),))
_HEAD = RayStart(path="run.sh", line=4, options={"head": ""})
_ALONE = RayStarts((_HEAD,))
_NODES = RayStarts((_HEAD, RayStart(path="run.sh", line=8, options={"address": "$HEAD:6379"})))


def _examples() -> list[Example]:
    return [
        Example("a cluster that requires none", (_NAMED, joins(a_cluster()), _THERE, _NO_SCRIPT)),
        Example(
            "the mode is set",
            (_NAMED, _LOCKED, RayToken(mode="token", path="/home/me/.ray/auth_token"), _NO_SCRIPT),
        ),
        Example(
            "found on this machine: Ray sends the token automatically", (_FOUND, _LOCKED, _THERE, _NO_SCRIPT)
        ),
        Example("a script that only starts a head", (_START, _NONE, _THERE, _ALONE)),
        Example(
            "a script with the mode",
            (_START, _NONE, RayToken(mode="token", path="/t", by_itself=True), _NODES),
        ),
        Example("a script, and no token", (_START, _NONE, RayToken(by_itself=True), _NODES)),
        Example(
            "a script that starts a head, and joins it by its address",
            (_START, _NONE, _THERE, _NODES),
            "ray start --address sends none",
        ),
        Example("a given address", (_NAMED, _LOCKED, _THERE, _NO_SCRIPT), "RAY_AUTH_MODE is not set"),
        Example(
            "a Ray that never sends it automatically",
            (_FOUND, _LOCKED, RayToken(path="/home/me/.ray/auth_token"), _NO_SCRIPT),
            "RAY_AUTH_MODE is not set",
        ),
        Example(
            "switched off",
            (_FOUND, _LOCKED, RayToken(mode="disabled", path="/home/me/.ray/auth_token"), _NO_SCRIPT),
            "RAY_AUTH_MODE=disabled",
        ),
        Example("no token", (_NAMED, _REFUSED, RayToken("token"), _NO_SCRIPT), "this user has none"),
        Example(
            "another cluster's token",
            (_NAMED, _REFUSED, RayToken(mode="token", path="/home/me/.ray/auth_token"), _NO_SCRIPT),
            "it does not accept this user's",
        ),
        Example(
            "a Ray without support for tokens",
            (_NAMED, _REFUSED, RayToken(known=False), _NO_SCRIPT),
            "this Ray is too old to support tokens",
        ),
    ]


@check("RAY106", phase="ray", examples=_examples)
def cluster_token_not_sent(
    addresses: RayAddresses, clusters: RayClusters | Unknown, token: RayToken, starts: RayStarts | Unknown
) -> Iterator[Finding]:
    """The cluster requires a token, but the job would not send one.

    ## Why it matters

    A user's first local `ray.init()` creates `~/.ray/auth_token`. From then on that user's `ray start --head`
    silently requires the token. A driver that finds the cluster itself sends it; a driver with a given
    address (RAY_ADDRESS, `address=`), or a node that joins with `ray start --address`, sends it only with
    RAY_AUTH_MODE=token. Otherwise, after 20 seconds: `ConnectionError: Failed to connect to Ray cluster at
    ...`, or `InvalidAuthToken: Authentication token is missing or incorrect`.

    ## How to fix

    Run `export RAY_AUTH_MODE=token` for the job and for `ray start` on every node; all of them need the
    head's token in `~/.ray/auth_token`. Or start the head with RAY_AUTH_MODE=disabled, but then everybody who
    reaches the port can run programs.
    """
    cluster = None if isinstance(clusters, Unknown) else clusters.chosen
    if cluster is not None and addresses.taken is not None:
        yield from _now(cluster, addresses.taken, token)
    elif token.is_set and token.by_itself and not token.mode and not isinstance(starts, Unknown):
        yield from _ahead(addresses, starts)


def _now(cluster: RayCluster, taken: Place, token: RayToken) -> Iterator[Finding]:
    why, remedy = _why(cluster, taken, token) if cluster.token else ("", "")
    if why:
        yield Finding(
            f"the Ray at {cluster.address} requires a token, but {why}: the job could not join it",
            Evidence(
                f"{_VARIABLE}={token.mode}" if token.mode else f"{_VARIABLE} is not set",
                f"{_VARIABLE}=token, and the token of the head",
                f"the GCS at {cluster.address}; {taken.given_by}",
            ),
            subject=Subject("cluster", cluster.address),
            location=finding_its_place(taken),
            remedy=remedy,
            fix="ray-token-mode" if token.is_set and not cluster.refused else None,
        )


def _ahead(addresses: RayAddresses, starts: RayStarts) -> Iterator[Finding]:
    """Yield a finding if a script's head needs the token but its other commands join without sending one."""
    head = next((command for command in starts.commands if "head" in command.options), None)
    joins = next(
        (command for command in starts.commands if command.options.get("address", "auto") != "auto"), None
    )
    named = (
        addresses.taken if addresses.taken and addresses.taken.source in ("RAY_ADDRESS", "ray.init") else None
    )
    if head is None or (joins is None and (named is None or named.text == "local")):
        return
    client = "ray start --address" if joins is not None else "a driver with a given address"
    yield Finding(
        (
            f"ray start --head would require this user's token, but {client} sends none unless {_VARIABLE} "
            "is set"
        ),
        Evidence(
            f"{_VARIABLE} is not set, and a token exists",
            f"{_VARIABLE}=token, or {_VARIABLE}=disabled, for all of them",
            f"{head.path}:{head.line}" + (f", {joins.path}:{joins.line}" if joins is not None else ""),
        ),
        subject=Subject("variable", _VARIABLE),
        location=Location(head.path, head.line),
        remedy=f"export {_VARIABLE}=token, for the job and for ray start on every node",
        fix="ray-token-mode",
    )


def _why(cluster: RayCluster, taken: Place, token: RayToken) -> tuple[str, str]:
    """What is missing, and the remedy; both empty if nothing is."""
    copy = "copy ~/.ray/auth_token from the head's user to this one's"
    if not token.known:
        return "this Ray is too old to support tokens", "install the cluster's version of Ray"
    if not token.is_set:
        return "this user has none", f"{copy}; then export {_VARIABLE}=token"
    if cluster.refused:
        return "it does not accept this user's", copy
    named = taken.source not in ("address file", "raylet")
    if token.mode == "token" or (not token.mode and token.by_itself and not named):
        return "", ""
    shown = f"{_VARIABLE}={token.mode}" if token.mode else f"{_VARIABLE} is not set"
    return (
        f"none is sent because {shown}",
        f"export {_VARIABLE}=token, for the job and for ray start on every node",
    )
