"""The Ray named by --ray-address: output of `actors` and `clean` if it responds, and if it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verl_doctor.toolkit.collectors.leftovers.actors import LeftActors, left_actors
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import FileLeftovers, file_leftovers
from verl_doctor.toolkit.collectors.ray.addresses import Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.commands.actors.document import headline
from verl_doctor.toolkit.commands.actors.placement import placement
from verl_doctor.toolkit.commands.actors.render import text_lines
from verl_doctor.toolkit.commands.clean.clean import Cleaned, find
from verl_doctor.toolkit.commands.clean.document import headline as clean_headline
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.named_ray import queried_clusters
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.leftover import KillActor, Leftover

ASKED = "10.0.0.5:6379"
PLACE = Place("--ray-address", "--ray-address", ASKED, "10.0.0.5", 6379, "connected")
OTHER = RayCluster("10.0.0.9:6379")
NOTHING = Absent("there is none")


def facts(clusters: RayClusters | Unknown, place: Place = PLACE) -> Collection:
    return Collection((), {RayClusters: clusters, RayAddresses: RayAddresses((place,))})


def test_only_the_named_ray_is_queried():
    named = RayCluster("10.0.0.5:1", also=(ASKED,))
    queried = queried_clusters(ASKED, facts(RayClusters((OTHER, named), ASKED)))
    assert isinstance(queried, RayClusters)
    assert queried.clusters == (named,)
    assert queried_clusters("", facts(RayClusters((OTHER,)))) == RayClusters((OTHER,))


@pytest.mark.parametrize(
    ("clusters", "place", "why"),
    [
        (RayClusters((OTHER,)), replace(PLACE, reply="refused"), f"nothing listens on {ASKED}; use the address"),
        (NOTHING, replace(PLACE, reply="silence"), f"{ASKED} does not respond; use the address"),
        (RayClusters((OTHER, RayCluster(ASKED, refused="no GCS"))), PLACE, "could not be read: no GCS; verl-doctor check"),
        (NOTHING, PLACE, "cannot be read: there is none; --python names"),
    ],
)  # fmt: skip
def test_uninformative_address_is_reported_without_an_alternative(clusters, place, why):
    queried = queried_clusters(ASKED, facts(clusters, place))
    assert isinstance(queried, Unknown)
    assert why in queried.reason
    found = placement(clusters, NOTHING, NOTHING, NOTHING, requested=queried)
    assert headline(found) == ("UNKNOWN", queried.reason)
    assert len(list(text_lines(found, None, every=True))) == 1


def test_unreadable_clusters_give_unknown():
    found = placement(RayClusters((replace(OTHER, refused="no token"),)), NOTHING, NOTHING, NOTHING)
    assert headline(found) == ("UNKNOWN", "the Ray at 10.0.0.9:6379 could not be read: no token")


def test_clean_continues_with_the_other_kinds():
    actor = Leftover(
        "actor", "cache", ("its job has finished",), KillActor(OTHER.address, "s", "a", "python")
    )
    known = {
        RayClusters: RayClusters((OTHER,)),
        RayAddresses: RayAddresses((replace(PLACE, reply="refused"),)),
        LeftActors: LeftActors((actor,)),
        FileLeftovers: FileLeftovers(),
    }
    collectors = (left_actors, file_leftovers)
    found = find(collectors, Collection(collectors, known), ASKED)
    assert found.leftovers == (actor,)
    ((fact, why),) = found.unknown
    assert fact == "LeftActors"
    assert why.startswith(f"no Ray answers at --ray-address: nothing listens on {ASKED}")
    assert find(collectors, Collection(collectors, known)).unknown == ()
    nothing = find(collectors, Collection(collectors, {**known, LeftActors: NOTHING}), ASKED)
    assert (clean_headline(Cleaned(nothing))[0], Cleaned(nothing).exit_code()) == ("UNKNOWN", 3)
