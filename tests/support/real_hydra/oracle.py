"""Runs under an interpreter with Hydra and answers JSON requests line by line: {parse: text} or {folder, name, overrides}."""

import json
import sys
import warnings

import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf

yaml.SafeLoader = yaml.CSafeLoader  # of which OmegaConf makes its loader: the same values, sooner
SIGNS = {"CHANGE": "", "ADD": "+", "FORCE_ADD": "++", "DEL": "~"}


def parsed(text):
    found = OverridesParser.create().parse_override(text)
    kind = found.value_type.name if found.value_type else "ELEMENT"
    value = found.value() if kind == "ELEMENT" else None
    return [SIGNS[found.type.name], found.key_or_group, found.package, kind, value]


def composed(folder, name, overrides):
    GlobalHydra.instance().clear()
    with initialize_config_dir(folder, version_base=None):
        tree = GlobalHydra.instance().hydra.compose_config(
            config_name=name,
            overrides=overrides,
            run_mode=RunMode.RUN,
            from_shell=False,
            with_log_configuration=False,
        )
    found = OmegaConf.to_container(tree, resolve=False)
    found.pop("hydra")
    return found


warnings.simplefilter("ignore")
for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"is": parsed(request["parse"]) if "parse" in request else composed(**request)}
    except Exception as error:  # noqa: BLE001 - whatever Hydra says
        answer = {"refused": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(answer))
