"""ENV118: the job reports to a tracker that it cannot log in to."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import Healed, healed, settings, variable
from verl_doctor.checks.shared.variables import places
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import trackers_of, trains
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.collectors.variables.trackers import Tracker, Trackers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_KEY = "trainer.logger"
_PROJECT = "trainer.project_name"
_ALONE = "the metrics go only to the console: no tracker records them"
_ONLINE = ("", "online", "run", "cloud", "shared")
_PLACES = ("WANDB_API_KEY", "/home/me/.netrc")


_MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")


def _trackers(
    *, installed: bool = True, key: str = "", mode: str = "", offline: str = "", modes: tuple[str, ...] = ()
) -> Trackers:
    read_from = "/env/wandb/sdk/wandb_settings.py:400" if modes else ""
    return Trackers(
        trackers=(
            Tracker(
                name="wandb",
                installed=installed,
                key_from=key,
                mode=mode,
                looked_at=_PLACES,
                refuses="",
                modes=modes,
                modes_from=read_from,
            ),
        ),
        offline=offline,
    )


_NAMED = Trackers(
    (
        Tracker(
            name="wandb",
            installed=True,
            key_from="",
            mode="offline",
            looked_at=_PLACES,
            barred="/\\#?%:",
            barred_from="/env/wandb/sdk/wandb_settings.py:1359",
        ),
    )
)


def _opens_none(configuration: Configuration) -> str | None:
    return None if trains(configuration) else "the job trains nothing, so it opens no tracker"


def _examples() -> list[Example]:
    return [
        Example("only the console", (*configured('trainer.logger=["console"]'), _trackers())),
        Example("a key is set", (*configured(), _trackers(key="WANDB_API_KEY"))),
        Example(
            "a program that only generates",
            (replace(*configured(), program="/env/verl/trainer/main_generation_server.py"), _trackers()),
        ),
        Example("it works without a server", (*configured(), _trackers(mode="offline"))),
        Example(
            "verl's own default, and no key",
            (*configured(), _trackers()),
            "reports to wandb, but has no key for it",
        ),
        Example(
            "the job certainly stops",
            (
                *configured(),
                Trackers(
                    (
                        Tracker(
                            name="wandb",
                            installed=True,
                            key_from="",
                            mode="",
                            looked_at=_PLACES,
                            refuses="/env/wandb/sdk/wandb_login.py:260",
                        ),
                    )
                ),
            ),
            "has no key for it: the job stops",
        ),
        Example(
            "the package is missing",
            (*configured("trainer.logger=[wandb]"), _trackers(installed=False, mode="offline")),
            "wandb, which is not installed",
        ),
        Example("a mode that wandb has", (*configured(), _trackers(mode="dryrun", modes=_MODES))),
        Example(
            "a typo in the mode",
            (*configured(), _trackers(mode="ofline", modes=_MODES)),
            "wandb refuses WANDB_MODE=ofline; did you mean offline?",
        ),
        Example(
            "a project's name that wandb accepts", (*configured("+trainer.project_name=team-tune"), _NAMED)
        ),
        Example(
            "a project's name with a slash",
            (*configured("+trainer.project_name=team/tune"), _NAMED),
            "wandb refuses trainer.project_name=team/tune: a name cannot have /",
        ),
        Example(
            "disabled, whatever the name",
            (
                *configured("+trainer.project_name=team/tune"),
                Trackers((replace(_NAMED.trackers[0], mode="disabled"),)),
            ),
        ),
        Example(
            "a text in place of the key",
            (
                *configured(),
                Trackers(
                    (
                        Tracker(
                            name="wandb",
                            installed=True,
                            key_from="WANDB_API_KEY",
                            looked_at=_PLACES,
                            to_fill_in="<your_key>",
                        ),
                    )
                ),
            ),
            "WANDB_API_KEY is still <your_key>, which wandb refuses",
        ),
        Example(
            "a text in place of the key, which is not needed",
            (
                *configured(),
                Trackers(
                    (
                        Tracker(
                            name="wandb",
                            installed=True,
                            key_from="WANDB_API_KEY",
                            mode="offline",
                            looked_at=_PLACES,
                            to_fill_in="<your_key>",
                        ),
                    )
                ),
            ),
        ),
        Example(
            "a key, and no network",
            (*configured(), _trackers(key="WANDB_API_KEY", offline="HF_HUB_OFFLINE")),
            "HF_HUB_OFFLINE is set, so there is no network",
        ),
    ]


@check("ENV118", severity="warning", applies=_opens_none, requires=("CFG103", "CFG104"), examples=_examples)
def tracker_without_key(
    configuration: Configuration,
    trackers: Trackers,
    environment: EffectiveEnvironment | Unknown,
    variables: Variables | Unknown,
    launch: Launch | Unknown,
) -> Iterator[Finding]:
    """The job reports to a tracker that it cannot log in to.

    ## Why it matters

    verl's default is `trainer.logger=["console","wandb"]`. The tracker is opened when training begins, after
    all models have been loaded, and in a Ray worker, where no key can be entered: `No API key configured`.
    The minutes until then are lost. Without a network, `wandb.init` waits 90 s and
    fails. A mode that it does not have (`WANDB_MODE=ofline`) ends it too, and so does a project's name with a
    slash.

    ## How to fix

    Run `wandb login` on the driver's node, or set `WANDB_MODE=offline` and send the runs later with `wandb
    sync`, or set `trainer.logger=["console"]`. For SwanLab, run `swanlab login` or set
    `SWANLAB_MODE=offline`.
    """
    wanted = trackers_of(configuration)
    word = next((word for word in configuration.overrides if word.key == _KEY), None)
    where = place(word) if word else None
    for tracker in trackers.trackers:
        if tracker.name in wanted:
            console = healed("ENV118", settings(configuration, {_KEY: ["console"]}, _ALONE, ""))
            mode = _intended_mode(tracker, variables, launch)
            yield from _judged(tracker, trackers.offline, where, environment, console, mode)
            yield from _project(tracker, configuration)


def _project(tracker: Tracker, configuration: Configuration) -> Iterator[Finding]:
    """A name of the project that the tracker refuses."""
    name, word = configuration.get(_PROJECT), configuration.override_of(_PROJECT)
    if not tracker.installed or not isinstance(name, str) or "${" in name or tracker.mode == "disabled":
        return
    if signs := sorted(set(tracker.barred).intersection(name)):
        shown = " ".join(signs)
        plain = "".join("-" if sign in signs else sign for sign in name)
        yield Finding(
            f"{tracker.name} refuses {_PROJECT}={name}: a name cannot have {shown}",
            Evidence(
                word.text if word else f"{_PROJECT}={name}", f"a name without {shown}", tracker.barred_from
            ),
            location=place(word) if word else None,
            remedy=f"leave {shown} out of {_PROJECT}",
            severity="error",
            stops=(EVERY_JOB,),
            phase="start",
            subject=Subject("setting", _PROJECT),
            **healed(
                "ENV118", settings(configuration, {_PROJECT: plain}, effect=f"the project is called {plain}")
            ),
        )


def _near(tracker: Tracker) -> str:
    """The mode with the most similar name; "" if none is similar."""
    return next(iter(difflib.get_close_matches(tracker.mode.lower(), tracker.modes, 1)), "")


def _intended_mode(tracker: Tracker, variables: Variables | Unknown, launch: Launch | Unknown) -> Healed:
    """The mode with the most similar name, where a file sets the variable."""
    near = _near(tracker)
    found = [] if isinstance(variables, Unknown) else places(tracker.mode_variable, variables, launch)
    if not near or not found:
        return {}
    why = f"{near} is the closest mode to {tracker.mode}"
    return healed("ENV118", variable(tracker.mode_variable, found[-1].value, found[-1].location, near, why))


def _judged(
    tracker: Tracker,
    offline: str,
    where: Location | None,
    environment: EffectiveEnvironment | Unknown,
    alone: Healed,
    intended: Healed,
) -> Iterator[Finding]:
    console = f'{_KEY}=["console"]'
    subject = Subject("tracker", tracker.name)
    read_from = _KEY if where else "verl's default"
    certain = bool(tracker.refuses)
    stopped = partial(
        Finding, location=where, severity="error", stops=(EVERY_JOB,), phase="start", subject=subject
    )
    if not tracker.installed:
        yield stopped(
            f"the job reports to {tracker.name}, which is not installed",
            Evidence(f"{_KEY} names {tracker.name}", tracker.name, read_from),
            remedy=f"pip install {tracker.name}, or {console}",
            **alone,
        )
    elif tracker.mode and tracker.modes and tracker.mode not in tracker.modes:
        near = _near(tracker)
        yield stopped(
            f"{tracker.name} refuses {tracker.mode_variable}={tracker.mode}"
            + (f"; did you mean {near}?" if near else ""),
            Evidence(f"{tracker.mode_variable}={tracker.mode}", ", ".join(tracker.modes), tracker.modes_from),
            remedy=f"set {tracker.mode_variable}={near or 'offline'}, or {console}",
            **(intended or alone),
        )
    elif tracker.mode not in _ONLINE:
        return
    elif tracker.to_fill_in:
        name = tracker.looked_at[0]
        yield stopped(
            f"{name} is still {tracker.to_fill_in}, which {tracker.name} refuses as a key",
            Evidence(f"{name}={tracker.to_fill_in}", "a key of the account"),
            remedy=f"set {name} to your key, or {tracker.mode_variable}=offline, or {console}",
            **alone,
        )
    elif not tracker.key_from and not _has_key(environment, tracker.looked_at[0]):
        yield Finding(
            f"the job reports to {tracker.name}, but has no key for it: the job stops when training begins",
            Evidence(
                f"none in {', '.join(tracker.looked_at)}",
                f"a key, or {tracker.mode_variable} for no server",
                tracker.refuses if certain else read_from,
            ),
            location=where,
            remedy=f"run {tracker.name} login, or set {tracker.mode_variable}=offline, or {console}",
            severity="error" if certain else None,
            stops=(EVERY_JOB,) if certain else (),
            phase="start",
            subject=subject,
            **(alone if alone and certain else {"fix": "tracker-offline"}),
        )
    elif offline:
        yield Finding(
            f"the job reports to {tracker.name}, but {offline} is set, so there is no network",
            Evidence(f"{offline}=1", f"{tracker.mode_variable}=offline", read_from),
            location=where,
            remedy=(
                f"if this machine has no network, set {tracker.mode_variable}=offline; otherwise the "
                "tracker waits and fails"
            ),
            severity="info",
            fix="tracker-offline",
            subject=subject,
        )


def _has_key(environment: EffectiveEnvironment | Unknown, variable: str) -> bool:
    """Whether the workers of a running cluster may have their own key."""
    return not isinstance(environment, Unknown) and environment.worker(variable).is_set is not False
