"""CFG103: a word of the command is no override that Hydra takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest

from verl_doctor.checks.shared.configuration import SCRIPT, configured, if_added, place, severity_of
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.checks.shared.launch_examples import FILES
from verl_doctor.checks.shared.made_first import unless_made
from verl_doctor.checks.shared.refused_words import SETTING, corrected, explanation, goes_on, takes
from verl_doctor.toolkit.collectors.configuration.configuration import (
    UNDETERMINED_VALUE,
    Configuration,
    OverrideWord,
    with_overrides,
)
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Command, Launch, Word
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Rewrite, Subject, check
from verl_doctor.toolkit.sources.shell.syntax import every_word
from verl_doctor.toolkit.text import closest, listed

_FEW = 8  # options of a group that a sentence names
_RESOLVER = re.compile(r"(?<!\\)(?:\\\\)*\$\{([A-Za-z_][\w.]*):")  # behind a backslash it is a text
_RESOLVERS = frozenset(
    {
        "oc.create",
        "oc.decode",
        "oc.deprecated",
        "oc.dict.keys",
        "oc.dict.values",
        "oc.env",
        "oc.select",
        "hydra",
        "now",
        "python_version",
    }
)
_OLD_LAUNCHER, _NEW_LAUNCHER = "torch.distributed.launch", "torch.distributed.run"
_OF_TORCHRUN = re.compile(
    r"--(?:nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_](?:addr|port)|max[-_]restarts|rdzv"
    r"[-_]\w+)=[\w.:-]+|--standalone"
)
_OF_A_VARIABLE = re.compile(r"\+{0,2}[A-Za-z_][\w.]*=[\w./-]*\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})[\w./-]*")
_BRACES = re.compile(r"\+{0,2}[A-Za-z_][\w.]*=\{[\w.:,+-]+\}")
_QUOTED_VARIABLE = re.compile(r"\"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})\"")


def _by_old_launcher(*options: str) -> Launch:
    words = ("-m", _OLD_LAUNCHER, *options, "-m")
    launcher = tuple(Word(text=word, path=SCRIPT, line=3) for word in words)
    return Launch(
        FILES,
        command=Command(module="verl.trainer.sft_trainer", words=(), path=SCRIPT, line=3, launcher=launcher),
    )


def _examples() -> list[Example]:
    return [
        Example(
            "overrides", configured("trainer.nnodes=2", "~data.max_prompt_length", "trainer.logger=[console]")
        ),
        Example(
            "a value that must be quoted",
            configured("data.train_files=~/x"),
            "`~` must be quoted in a value",
        ),
        Example(
            "a dash inserted by an editor",
            configured("data.max_prompt_length=1\u2013"),
            "must be quoted in a value",
        ),
        Example(
            "a non-breaking space",
            configured("trainer.nnodes=1\u00a0data.shuffle=False"),
            "a non-breaking space (U+00A0) stands in trainer.nnodes=1 data.shuffle=False",
        ),
        Example("two values", configured("trainer.logger=console,wandb"), "[console,wandb]"),
        Example(
            "a list with a space", configured("trainer.logger=[console,", "wandb]"), "a space inside a list"
        ),
        Example("an option", configured("--config=mine"), "Hydra has no option --config"),
        Example(
            "a setting in the manner of argparse",
            configured("--trainer.nnodes", "1"),
            "Hydra has no option --trainer.nnodes",
        ),
        Example("interpolations", configured("+trainer.run=${oc.env:USER,me}-${now:%H}-${trainer.nnodes}")),
        Example(
            "a default of the shell's, for a variable that is not known",
            (
                with_overrides(
                    configured()[0],
                    [Word(text=None, path=SCRIPT, line=3, written="trainer.nnodes=${NNODES:-1}")],
                ),
            ),
        ),
        Example("a resolver behind a backslash", configured(r"+trainer.run='\${date:%H}'")),
        Example(
            "a resolver that does not exist",
            configured("+trainer.run=${date:%H}"),
            "nothing resolves ${date:...}",
        ),
        Example("nothing to delete", configured("~trainer.mine"), "deletes a key that does not exist"),
        Example(
            "deleted, and added again",
            configured(
                "~trainer.folder",
                "+trainer.folder=/x",
                tree={"trainer": {"name": "a", "folder": "checkpoints/${trainer.name}"}},
            ),
        ),
        Example(
            "added by a word that is not known",
            (
                with_overrides(
                    configured()[0],
                    [
                        Word(text=None, path=SCRIPT, line=3, written="$MORE"),
                        Word(text="~trainer.mine", path=SCRIPT, line=3),
                    ],
                ),
            ),
        ),
        Example(
            "a folder that does not exist",
            (replace(configured()[0], refused="no mine", missing_folder="/home/me/recipe/config"),),
            "the folder /home/me/recipe/config does not exist",
        ),
        Example(
            "a folder that the script fills first",
            (
                replace(configured()[0], refused="no mine", missing_folder="/home/me/made"),
                Launch(FILES, made=("/home/me/made/mine.yaml",)),
            ),
            "unless a command of the script creates it first",
        ),
        Example(
            "a file that the script writes first",
            (
                replace(configured()[0], name="mine", refused="no mine"),
                Launch(FILES, made=("/home/me/verl/mine.yaml",)),
            ),
            "unless a command of the script creates it first",
        ),
        Example("no such group", configured("actor@critic=mine"), "has no group actor"),
        Example(
            "the old launcher of torch, with the environment", (*configured(), _by_old_launcher("--use-env"))
        ),
        Example(
            "the old launcher of torch",
            (*configured(), _by_old_launcher()),
            "passes --local-rank to the program",
        ),
    ]


@check("CFG103", phase="composition", examples=_examples)
def override_not_understood(configuration: Configuration, launch: Launch | Unknown) -> Iterator[Finding]:
    r"""An argument of the command is not a valid Hydra override.

    ## Why it matters
    Hydra stops before anything starts. Its grammar differs from the shell's: a value with `~`, `=`, `(`,
    quotes or non-ASCII letters needs its own quotes, and `a=1,2` requests two runs.

    ## How to fix
    Quote the value for Hydra, and the whole word for the shell: `'data.path="~/x"'`. Write a list as
    `'a=[1,2]'`. A word that is not an override often comes from a space after the `\` at the end of a line.
    """
    split = _split_words(launch)
    yield from _split_findings(split)
    in_one = _in_one_word(launch)
    yield from map(_in_one_finding, in_one)
    of_split = {(word.path, word.line, word.text) for words in (*split, in_one) for word in words}
    for index, word in enumerate(configuration.overrides):
        if (word.path, word.line, word.text) in of_split:
            continue
        above = configuration.overrides[max(index - 1, 0) : index]
        if goes_on(above, word) or any(takes(other, word, configuration) for other in above):
            continue
        explained = explanation(word, configuration.overrides[index + 1 :], configuration)
        before = configuration.overrides[:index]
        if word.fate == "nothing to delete" and any(other.fate == "not told" for other in before):
            continue  # an unknown word may add the key first
        if explained is not None:
            message, remedy = explained
            yield Finding(
                f"{message}{if_added(word)}",
                Evidence(found=word.text or "an empty word", wanted="key=value"),
                location=place(word),
                remedy=remedy,
                severity=severity_of(word),
                subject=Subject("setting", word.key or word.text or "''"),
                **(
                    healed("CFG103", _to_launcher(word, launch))
                    or corrected(word, configuration.overrides[index + 1 :], configuration)
                ),
            )
        elif resolver := _unknown_resolver(word, configuration):
            yield Finding(
                f"nothing resolves ${{{resolver}:...}} in {word.key}",
                Evidence(found=word.text, wanted=f"one of {', '.join(sorted(_RESOLVERS))}"),
                location=place(word),
                remedy=f"let the shell fill in the value, or use one of {', '.join(sorted(_RESOLVERS))}",
                subject=Subject("setting", word.key),
                phase="workers",
            )
    yield from _passed_on(launch)
    if folder := configuration.missing_folder:
        found = Finding(
            f"the folder {folder} does not exist, and Hydra looks for {configuration.name} there",
            Evidence(found=f"no {folder}", wanted="the folder of --config-path or --config-dir"),
            remedy="run verl-doctor check in the folder from which the job starts, or correct the option",
            severity="warning" if configuration.looked_here else None,
            subject=Subject("folder", folder),
            **healed("CFG103", _without_option(launch, ("--config-path", "-cp", "--config-dir", "-cd"))),
        )
        yield unless_made(found, folder, launch)
    elif configuration.refused:
        found = Finding(
            f"Hydra cannot compose {configuration.name}: {configuration.refused}",
            Evidence(found=configuration.refused, read_from=configuration.folder),
            remedy=_remedy_of_refusal(configuration),
            location=place(chooser) if (chooser := _chooser(configuration)) else None,
            subject=Subject("file", f"{configuration.folder}/{configuration.name}.yaml"),
            **healed(
                "CFG103",
                _found_in_verl(configuration)
                or _other_option(configuration)
                or _without_option(launch, ("--config-name", "-cn")),
            ),
        )
        yield unless_made(found, _lacking_file(configuration, launch), launch)


def _split_words(launch: Launch | Unknown) -> list[list[Word]]:
    """Return the words of the command that are several because quotes are missing.

    `key=$NAME` with blanks in the value has words without a sign behind the first. `key={a:1,b:2}` gives the
    same key several times.
    """
    command = None if isinstance(launch, Unknown) else launch.command
    words = command.words if command else ()
    groups = [list(group) for _, group in groupby(words, lambda word: (word.path, word.line, word.written))]
    return [group for group in groups if len(group) > 1 and _is_split(group)]


def _is_split(words: Sequence[Word]) -> bool:
    written, texts = words[0].written, [word.text or "" for word in words]
    if words[0].path == COMMAND_LINE or not all(texts) or any(word.conditional for word in words):
        return False
    if _OF_A_VARIABLE.fullmatch(written):
        return "=" in texts[0] and not any("=" in text or text.startswith("~") for text in texts[1:])
    return _BRACES.fullmatch(written) is not None and all("=" in text for text in texts)


def _split_findings(split: Iterable[Sequence[Word]]) -> Iterator[Finding]:
    for words in split:
        written = words[0].written
        quote = '"' if "$" in written else "'"
        yield Finding(
            f"the shell makes {len(words)} words of {written}: "
            f"{listed((word.text or '' for word in words), _FEW)}",
            Evidence(found=written, wanted=f"{quote}{written}{quote}"),
            location=Location(words[0].path, words[0].line),
            remedy=f"put it into quotes: {quote}{written}{quote}",
            subject=Subject("setting", written.partition("=")[0].lstrip("+"), written),
            fix="word-quoted",
        )


def _in_one_word(launch: Launch | Unknown) -> list[Word]:
    """Return the words of the command that are several settings, since quotes make one word of them."""
    command = None if isinstance(launch, Unknown) else launch.command
    words = command.words if command else ()
    return [word for word in words if len(SETTING.findall(word.text or "")) > 1 and _apart(word)]


def _apart(word: Word) -> str:
    """What passes the settings one by one in place of a word such as `"$*"` or `"$EXTRA"`; "" for any other.

    Without its quotes, a text is split at every blank: each piece must be a setting.
    """
    if "*" in word.written:
        return every_word(word.written)
    is_safe = all(map(SETTING.match, (word.text or "").split())) and not set(word.text or "") & set("*?[")
    return word.written[1:-1] if is_safe and _QUOTED_VARIABLE.fullmatch(word.written) else ""


def _in_one_finding(word: Word) -> Finding:
    meant = _apart(word)
    return Finding(
        f"{word.written} passes {len(SETTING.findall(word.text or ''))} settings as one word",
        Evidence(found=word.text or "", wanted=meant),
        location=Location(word.path, word.line),
        remedy=f"write {meant} in its place",
        subject=Subject("setting", word.written, meant),
        fix="every-word-passed",
    )


def _passed_on(launch: Launch | Unknown) -> Iterator[Finding]:
    """An option that the old launcher of torch passes to the program, unless it is to use the environment."""
    launcher = () if isinstance(launch, Unknown) or launch.command is None else launch.command.launcher
    texts = [word.text for word in launcher]
    if _OLD_LAUNCHER not in texts or {"--use-env", "--use_env"} & {*texts} or None in texts:
        return
    word = launcher[texts.index(_OLD_LAUNCHER)]
    at = Location(word.path, word.line)
    why = f"{_NEW_LAUNCHER} is torchrun: it takes the same options and passes nothing on"
    renamed = Correction("", (Rewrite(_OLD_LAUNCHER, _NEW_LAUNCHER, at),), why)
    yield Finding(
        f"{_OLD_LAUNCHER} passes --local-rank to the program, and Hydra has no such option",
        Evidence(found=_OLD_LAUNCHER, wanted="torchrun"),
        location=Location(word.path, None if word.path == COMMAND_LINE else word.line),
        remedy="start the program with torchrun, or add --use-env",
        subject=Subject("setting", "--local-rank"),
        **healed("CFG103", None if word.path == COMMAND_LINE else renamed),
    )


def _lacking_file(configuration: Configuration, launch: Launch | Unknown) -> str:
    """The file that Hydra does not find, if the script or the user provides it; "" elsewhere.

    It is returned where a command of the script writes it or the folder is the user's own.
    """
    name = f"/{(configuration.missing_option or configuration.name).removesuffix('.yaml')}.yaml"
    made = () if isinstance(launch, Unknown) else launch.made
    own = not configuration.folder.startswith(configuration.program.rpartition("/")[0])
    return next(
        (path for path in made if path.endswith(name)), f"{configuration.folder}{name}" if own else ""
    )


def _unknown_resolver(word: OverrideWord, configuration: Configuration) -> str:
    """The first resolver of an interpolation that neither OmegaConf nor Hydra has.

    A program of the user's own may register others.
    """
    if "/verl/" not in configuration.program or word.fate != "applied" or word.value == UNDETERMINED_VALUE:
        return ""
    return next((name for name in _RESOLVER.findall(word.text) if name not in _RESOLVERS), "")


def _chooser(configuration: Configuration) -> OverrideWord | None:
    """The word that chooses an option that its group lacks."""
    chosen = configuration.missing_option
    words = (word for word in configuration.overrides if "/" in chosen)
    return next((word for word in words if f"{word.key.partition('@')[0]}/{word.value}" == chosen), None)


def _to_launcher(word: OverrideWord, launch: Launch | Unknown) -> Correction | None:
    """An option of torchrun's behind the module is moved in front of it."""
    launcher = () if isinstance(launch, Unknown) or launch.command is None else launch.command.launcher
    last = launcher[-1] if launcher else None
    if last is None or last.text != "-m" or not _OF_TORCHRUN.fullmatch(word.text):
        return None
    gone = reworded(word, None, f"{word.text.partition('=')[0]} is an option of torchrun")
    moved = Rewrite("-m", f"{word.text} -m", Location(last.path, last.line))
    return gone and replace(gone, rewrites=(*gone.rewrites, moved))


def _remedy_of_refusal(configuration: Configuration) -> str:
    if configuration.found_with:
        return f"add hydra.searchpath=[{configuration.found_with}], where verl has that file"
    if not configuration.options:
        return "choose options that exist in the configuration folder"
    group = configuration.missing_option.rpartition("/")[0]
    return f"choose one of {listed(configuration.options, _FEW)} for {group}"


def _found_in_verl(configuration: Configuration) -> Correction | None:
    """Verl's own folder is searched too, for a file that the user's own configuration builds on."""
    if not configuration.found_with or _chooser(configuration) is not None:
        return None
    why = f"verl has {configuration.missing_option.removesuffix('.yaml')}.yaml there"
    added = Rewrite("", f"hydra.searchpath=[{configuration.found_with}]")
    return Correction("", (added,), why)


def _other_option(configuration: Configuration) -> Correction | None:
    """The existing option closest to the missing one.

    Without any, remove the word, so that verl's own choice applies.
    """
    word = _chooser(configuration)
    if word and str(word.value).startswith(("/", "~/")):
        return reworded(
            word, f"{word.key}.path={word.value}", f"{word.value} is a path, not one of verl's files"
        )
    if word is None or not configuration.options:
        return None
    near = closest(str(word.value), configuration.options)
    head = word.text.partition("=")[0]
    other = near or "verl's own"
    effect = f"the job is configured with {word.key}: {other} instead of {word.value}"
    return reworded(word, f"{head}={near}" if near else None, effect=effect)


def _without_option(launch: Launch | Unknown, options: Sequence[str]) -> Correction | None:
    """The command without one of Hydra's options, so that verl's own configuration applies."""
    if isinstance(launch, Unknown) or launch.command is None:
        return None
    words = launch.command.words
    for word, following in zip_longest(words, words[1:]):
        option, equals, _ = (word.text or "").partition("=")
        if option not in options or word.path == COMMAND_LINE or word.conditional:
            continue
        gone = (word,) if equals or following is None else (word, following)
        if any(word.text is None for word in gone):
            return None
        rewrites = tuple(Rewrite(word.text or "", None, Location(word.path, word.line)) for word in gone)
        return Correction("", rewrites, effect=f"the job uses verl's own configuration, without {option}")
    return None
