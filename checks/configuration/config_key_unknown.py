"""CFG101: the launch script sets a key that verl's configuration does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.configuration._verl_keys import (
    alike,
    certain,
    elsewhere,
    history,
    is_free,
    is_slip,
    renamed,
)
from verl_doctor.checks.shared.configuration import (
    SCRIPT,
    configured,
    if_added,
    place,
    release,
    severity_of,
    tree_of,
)
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.configuration import (
    MISSING,
    UNDETERMINED_VALUE,
    Configuration,
    OverrideWord,
    with_overrides,
)
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

# Of an absolute key, without a resolver. OmegaConf takes `\${x}` as a text, `\\${x}` as a backslash and an
# interpolation.
_INTERPOLATION = re.compile(r"(?<!\\)(?:\\\\)*(\$\{([A-Za-z_][\w.]*)\})")
_FEW = 3  # matches of one name: more do not show what was meant


def _own(value: str) -> Configuration:
    """A configuration file of the user's own with this value."""
    (found,) = configured(tree={"data": {"train_files": value}, "root": "/data", "files": ["a", "b"]})
    return replace(found, folder="/home/me/conf", name="mine", origins={"data.train_files": "mine.yaml:7"})


def _examples() -> list[Example]:
    return [
        Example("an interpolation of a key", configured("trainer.total_epochs=${trainer.nnodes}")),
        Example(
            "a value known only when the script runs",
            (
                with_overrides(
                    configured()[0], [Word(text=None, path=SCRIPT, line=2, written="trainer.nnodes=$N")]
                ),
            ),
        ),
        Example("a key that a resolver creates", configured("data.train_files=${oc.env:X}")),
        Example(
            "an interpolation of a missing key",
            configured("data.train_files=x/${trainer.nodes}"),
            "${trainer.nodes}, which does not exist",
        ),
        Example("an interpolation in the user's own file", (_own("${root}/x"),)),
        Example(
            "a shell variable in the user's own file",
            (_own("${DATA}/x"),),
            "data.train_files refers to ${DATA}, which does not exist",
        ),
        Example(
            "an escaped interpolation",
            (*configured(r"trainer.project_name='price in \${CURRENCY}'"), _own(r"\${DATA}")),
        ),
        Example(
            "a backslash before an interpolation",
            (_own(r"\\${DATA}/x"),),
            "refers to ${DATA}, which does not exist",
        ),
        Example("an element of a list", (_own("${files.1}/x"),)),
        Example(
            "more elements than a list has",
            (_own("${files.2}/x"),),
            "refers to ${files.2}, which does not exist",
        ),
        Example("all keys exist", configured("trainer.nnodes=2", "data.train_batch_size=64")),
        Example("a new key is appended", configured("+actor_rollout_ref.model.override_config.attn=sdpa")),
        Example(
            "a typo inside an if",
            (
                with_overrides(
                    configured()[0], [Word(text="trainer.nnode=2", path=SCRIPT, line=2, conditional=True)]
                ),
            ),
            "has no setting trainer.nnode, which a condition of the script adds",
        ),
        Example("a typo", configured("trainer.n_gpu_per_node=8"), "did you mean trainer.n_gpus_per_node?"),
        Example(
            "a key that verl renamed",
            configured("ray_init.num_cpus=8"),
            "renamed to ray_kwargs.ray_init.num_cpus in verl 0.6.0",
        ),
        Example(
            "a key in another section",
            configured("actor_rollout_ref.actor.max_num_seqs=4"),
            "actor_rollout_ref.rollout.max_num_seqs",
        ),
        Example(
            "a key of a newer verl",
            configured("trainer.use_v1=True", verl="0.4.1"),
            "verl 0.4.1 has no setting",
        ),
        Example(
            "a setting of vLLM",
            configured("actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=1"),
            "has no setting",
        ),
    ]


@check("CFG101", phase="composition", examples=_examples)
def config_key_unknown(configuration: Configuration) -> Iterator[Finding]:
    """The launch script sets a key that verl's configuration does not have.

    ## Why it matters
    Hydra stops before anything starts: `Could not override ...: Key 'X' is not in struct`. verl renames and
    moves keys between releases, so a script that ran yesterday stops after an upgrade.

    ## How to fix
    Use the key that this verl has. Keys that verl reads although its configuration does not list them, such
    as those below `override_config` and `engine_kwargs`, are appended with `+`. `verl-doctor fix --select
    CFG101` shows the corrected line where only one key can be meant.

    An interpolation `${a.b}` of a missing key ends the job when verl resolves the configuration, after Ray is
    up.
    """
    for word in configuration.overrides:
        if word.fate == "no such key":
            yield _finding(word, configuration)
        elif word.fate == "applied" and isinstance(word.value, str) and not word.conditional:
            for missing in _missing(word.value, configuration):
                yield _dangling(word, missing, configuration)
    for key in configuration.origins:
        own = configuration.own_line(key)
        if own is not None and configuration.override_of(key) is None:
            for missing in _missing(_written(configuration, key), configuration):
                yield _dangling_in_file(key, own, missing, configuration)


def _missing(value: object, configuration: Configuration) -> Iterator[str]:
    """Yield the keys that a value refers to and that do not exist."""
    for match in _INTERPOLATION.finditer(value) if isinstance(value, str) else ():
        is_known = match[1] == UNDETERMINED_VALUE or match[2].partition(".")[0] == "hydra"
        if not is_known and configuration.get(match[2]) is MISSING:
            yield match[2]


def _written(configuration: Configuration, key: str) -> object:
    """Return a value as it is written, with its interpolations."""
    value: object = configuration.after
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _dangling_in_file(key: str, own: tuple[str, int], missing: str, configuration: Configuration) -> Finding:
    near = alike(missing, configuration)
    return Finding(
        f"{key} refers to ${{{missing}}}, which does not exist" + (f"; did you mean {near}?" if near else ""),
        Evidence(
            found=f"{key}: {_written(configuration, key)}",
            wanted="a key of the configuration",
            read_from=tree_of(configuration),
        ),
        location=Location(*own),
        remedy=f"write ${{{near}}}"
        if near
        else "name an existing key, ${oc.env:NAME} for a variable, or the value",
        subject=Subject("setting", key, missing),
        phase="workers",
    )


def _dangling(word: OverrideWord, key: str, configuration: Configuration) -> Finding:
    near = alike(key, configuration)
    return Finding(
        f"{word.key} refers to ${{{key}}}, which does not exist"
        + (f"; did you mean {near}?" if near else ""),
        Evidence(found=word.text, wanted="a key of verl's configuration", read_from=tree_of(configuration)),
        location=place(word),
        remedy=f"write ${{{near}}}" if near else "name an existing key, or write the value",
        subject=Subject("setting", word.key, key),
        phase="workers",
        **healed(
            "CFG101", reworded(word, word.text.replace(f"${{{key}}}", f"${{{near}}}")) if near else None
        ),
    )


def _finding(word: OverrideWord, configuration: Configuration) -> Finding:
    what, remedy = _meant(word, configuration)
    return Finding(
        f"{release(configuration)} has no setting {word.key}{if_added(word)}{what}",
        Evidence(found=word.text, wanted="a key of verl's configuration", read_from=tree_of(configuration)),
        location=place(word),
        remedy=remedy,
        severity=severity_of(word),
        subject=Subject("setting", word.key, word.text),
        **(
            {"fix": "script-key"}
            if certain(word, configuration) and place(word).line
            else healed("CFG101", _correction(word, configuration))
        ),
    )


def _correction(word: OverrideWord, configuration: Configuration) -> Correction | None:
    """The intended key if there is one; otherwise, remove the word if this verl has nothing like it."""
    sign, value = word.sign, word.text.partition("=")[2]

    def as_key(key: str, effect: str = "") -> Correction | None:
        other = configuration.override_of(key)
        if other is not None and other.value != word.value:
            effect = (
                f"{key} is also set to {other.text.partition('=')[2]} in line {other.line}, and the later "
                "of the two counts"
            )
        why = "" if effect else f"{word.key} most likely means {key}"
        return reworded(word, f"{sign}{key}={value}", why, effect)

    if (moved := renamed(word.key, configuration)) is not None:
        return as_key(moved.new, moved.note)
    if near := alike(word.key, configuration):
        return as_key(near, "" if is_slip(word.key, near) else f"{near} may not be what {word.key} meant")
    others = elsewhere(word.key, configuration)
    if "." not in word.key and len(others) == 1:
        return as_key(others[0], f"{others[0]} may not be what {word.key} meant")
    if "/" in value and (others or not history(word.key, configuration.verl).went):
        return None  # a path that the job may need under another key
    return reworded(
        word, None, effect=f"{release(configuration)} has no equivalent, so the job runs without {word.text}"
    )


def _meant(word: OverrideWord, configuration: Configuration) -> tuple[str, str]:
    """The end of the message, and the next step."""
    key = word.key
    moved = renamed(key, configuration)
    if moved is not None:
        note = f" ({moved.note})" if moved.note else ""
        return (
            f": renamed to {moved.new} in verl {moved.release}{note}",
            f"write {moved.new} instead of {key}",
        )
    if is_free(key, configuration):
        return "; append keys of this section with +", f"write +{word.text.lstrip('+')}"
    if near := alike(key, configuration):
        return f"; did you mean {near}?", f"write {near} instead of {key}"
    past = history(key, configuration.verl)
    if past.came and not past.went:
        return f": added in verl {past.came}", f"remove it, or write +{key} if your own code reads it"
    when = f": removed in verl {past.went}" if past.went else ""
    others = elsewhere(key, configuration)
    if others and len(others) <= _FEW:
        return (
            f"{when}; similar: {listed(others, _FEW)}",
            f"write {others[0]} if you meant that, or remove {key}",
        )
    return when, f"remove it, or write +{key} if your own code reads it"
