"""Whether the tokenizer of the job's model has a chat template.

Where transformers looks: `chat_template` of tokenizer_config.json, chat_template.jinja, the folder
additional_chat_templates, and for a processor chat_template.json and processor_config.json
(transformers/tokenization_utils_base.py, processing_utils.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.launch import Launch, folder_of
from verl_doctor.toolkit.collectors.model.model import BadFile, named_model, read_json
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

_CONFIG = "tokenizer_config.json"
_KEY = "chat_template"
_FILES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates", "tekken.json")
_CONFIGS = (_CONFIG, "processor_config.json", "preprocessor_config.json")
_CUSTOM = ("actor_rollout_ref.model.custom_chat_template", "model.custom_chat_template")
_TOKENIZER = "actor_rollout_ref.model.tokenizer_path"
# A model's own code may build a tokenizer from any file.
_OF_TOKENIZER = re.compile(
    r"token|vocab|merges|spiece|sentencepiece|tekken|\.(?:model|tiktoken|bpe|py)$", re.IGNORECASE
)
_FIRST_WITHOUT_DEFAULTS = Version(
    "4.44"
)  # transformers before that had built-in templates for some tokenizers


@dataclass(frozen=True)
class ChatTemplate:
    """`folder` is the tokenizer's, `found_in` the file with the template, "" if none has it.

    `has_tokenizer`: the folder has at least one tokenizer file. `is_doubtful`: the template may have a syntax
    error. `text` is a template that the setting `found_in` holds, and `of_tokenizer` the file with another
    one, in the tokenizer's folder. `names` are those of several templates in one file.
    """

    folder: str
    found_in: str = ""
    has_tokenizer: bool = True
    is_doubtful: bool = False
    text: str = ""
    of_tokenizer: str = ""
    names: tuple[str, ...] = ()


@collector(kept=True)
def chat_template(
    machine: Machine,
    target: Target,
    launch: Launch | Unknown,
    configuration: Configuration,
    packages: Packages | Unknown,
) -> ChatTemplate | Unknown:
    """Look for a template in each place.

    A tokenizer in the model's own code may define one that no file shows.
    """
    named = named_model(machine, target, launch, configuration)
    if isinstance(named, Unknown):
        return named
    if named.cached:
        return Absent(
            "the files of the model that are not in the hub's cache are fetched when the job starts"
        )
    folder = named.folder
    other = configuration.get(_TOKENIZER)
    if isinstance(other, str) and other and other != configuration.get("actor_rollout_ref.model.path"):
        folder = folder_of(launch, machine.cwd) / machine.expanded(other)
    if _may_have_default(packages):
        return Absent("this transformers has built-in chat templates")
    config = read_json(folder / _CONFIG)
    if isinstance(config, BadFile) and config.trouble == "missing" and _lacks_tokenizer(folder):
        return ChatTemplate(str(folder), has_tokenizer=False)
    if (
        isinstance(config, BadFile)
        and config.trouble == "missing"
        and os.path.exists(folder / "tokenizer.json")
    ):
        config = {}
    if isinstance(config, BadFile):
        return Unknown(f"{folder / _CONFIG} cannot be read")
    if "auto_map" in config:
        return Absent(f"{folder} has a tokenizer with its own code")
    from verl_doctor.toolkit.collectors.model.template_doubts import looks_doubtful  # noqa: PLC0415 - for a template alone

    for key in _CUSTOM:
        text = configuration.get(key)
        if isinstance(text, str) and text and "${" not in text:
            own = _of_tokenizer(folder, machine)
            return ChatTemplate(
                str(folder),
                key,
                is_doubtful=looks_doubtful(text),
                text=text,
                of_tokenizer="" if own.is_doubtful else own.found_in,
            )
    return _of_tokenizer(folder, machine)


def _of_tokenizer(folder: Path, machine: Machine) -> ChatTemplate:
    """Return the template in the tokenizer's folder, or that there is none."""
    from verl_doctor.toolkit.collectors.model.template_doubts import looks_doubtful  # noqa: PLC0415 - for a template alone

    for name in _FILES:
        if os.path.exists(folder / name):
            text = machine.read(str(folder / name)) if name.endswith(".jinja") else None
            return ChatTemplate(
                str(folder), str(folder / name), is_doubtful=text is not None and looks_doubtful(text)
            )
    for name in _CONFIGS:
        content = read_json(folder / name)
        if not isinstance(content, BadFile) and (given := content.get(_KEY)):
            is_doubtful = isinstance(given, str) and looks_doubtful(given)
            return ChatTemplate(
                str(folder), str(folder / name), is_doubtful=is_doubtful, names=tuple(_names(given))
            )
    return ChatTemplate(str(folder))


def _names(given: object) -> Iterator[str]:
    """Yield the names of templates, which a file lists with their names or has by them."""
    if isinstance(given, dict):
        yield from map(str, given)
    for entry in given if isinstance(given, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"]


def _lacks_tokenizer(folder: Path) -> bool:
    """Return whether a model's folder has no tokenizer file of any kind. False if it cannot be listed."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return False
    return "config.json" in names and not any(map(_OF_TOKENIZER.search, names))


def _may_have_default(packages: Packages | Unknown) -> bool:
    found = None if isinstance(packages, Unknown) else packages.get("transformers")
    try:
        return found is not None and Version(found.version) < _FIRST_WITHOUT_DEFAULTS
    except InvalidVersion:
        return True
