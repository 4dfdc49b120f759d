"""Advice on what a job reads: files, columns of its data, weights."""

from __future__ import annotations

import re

from verl_doctor.toolkit.logs.advice.places import LONGEST, NEAREST, Place
from verl_doctor.toolkit.logs.blame import own_frames, package_of
from verl_doctor.toolkit.logs.packages import distribution
from verl_doctor.toolkit.logs.python_errors import Raised
from verl_doctor.toolkit.logs.shapes import mismatched

_TABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*|\w*(?:mapping|registry|factories|classes|handlers)\w*)\["
    r"(?:\w+\.)*(\w+)\]"
)
_MISSING_KEY = re.compile(r'key "(\w+)" not found in TensorDict')
# Tensors of verl's batches, and the settings with which they are computed.
_KEYS_OF = {
    "ref_log_prob": (
        "set actor.use_kl_loss=True or algorithm.use_kl_in_reward=True, which start the reference policy; "
        "both must fit a trainer or recipe of your own"
    ),
    "log_probs": (
        "set rollout.calculate_log_probs=True, or let the forward pass return them (a value head or a loss "
        "of your own may not)"
    ),
    "rollout_log_probs": "set rollout.calculate_log_probs=True",
    "old_log_probs": "it must be computed before the update (actor.compute_log_prob)",
    "values": (
        "leave out critic.enable=False and set algorithm.adv_estimator=gae, which starts the critic, or "
        "choose an estimator that needs none (grpo)"
    ),
    "rm_scores": "set reward_model.enable=True, or let the reward function return scores",
    "token_level_scores": "the reward must run before the advantages are computed",
    "response_mask": (
        "compute_response_mask must run before, as in this release's trainer; in a recipe whose trainer "
        "calls it after apply_kl_penalty, set algorithm.use_kl_in_reward=False (actor.use_kl_loss=True "
        "instead), or move the call up"
    ),
}
# Functions that verl calls and the job gives.
_FUNCTIONS = {
    "compute_score": (
        "a reward function: set custom_reward_function.path and custom_reward_function.name "
        "(reward.custom_reward_function in newer releases); only some reward managers, as naive, have "
        "verl's own to fall back on"
    ),
    "reward_fn": (
        "a reward: set reward_model.reward_manager (reward.reward_manager) or custom_reward_function.path; "
        "a trainer of your own must pass reward_fn"
    ),
    "val_reward_fn": (
        "a reward for validation: a trainer of your own must pass val_reward_fn, or set "
        "trainer.test_freq=-1 and trainer.val_before_train=False"
    ),
}
_CALLED = re.compile(r"\bself\.(\w+)\(")
PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_FILE = re.compile(r"(?:\[Errno \d+\] )?([A-Z][\w ]+?):? (?:b?'([^']+)'|\"([^\"]+)\")")
_IN_DATA = re.compile(r"reward|dataset|ray_trainer|agent_loop|metric|rl_dataset|main_ppo")
_TRAINERS = frozenset({"trl", "transformers", "openrlhf", "datasets", "llamafactory", "swift", "unsloth"})
KEY = re.compile(r"['\"]?([A-Za-z_]\w*)['\"]?")
_KEY_SETTING = re.compile(r"\[(?:(?:self|config|data_config|self\.config)\.)?(\w+_key)\]")
_NO_COLUMNS = re.compile(r"None of \[Index\(\[(.+?)\]|\[(.+?)\] not in index")
_ABSENT = re.compile(
    r"(?<![\w.])['\"`]?(~?/[^'\"`\s]+?|(?<![\w/'\"`])[\w.-]+/[^'\"`\s]+?)['\"`]?,? (?:does not exist"
    r"|doesn't exist|(?:was |is )?not found|cannot be found)"
)
_OF_FILES = frozenset(
    {"FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError", "FileExistsError"}
)
_SAVED = re.compile(r"^(.*/global_step_\d+)/")
_RECIPE = re.compile(r"/(?:recipes?|examples?)/")
# A row of a data set, of which a column is read by its name or by a constant that holds it.
_OF_ROW = re.compile(
    r"\b\w{0,40}(?:dataset|example|sample|row|feature|record)s?(?:\[[\w-]{1,20}\]){0,2}"
    r"\[(?:[\"']\w+[\"']|[A-Z][A-Z0-9_]+)\]"
)
_RETURNED = re.compile(r"(?:result|output|response|ret|res)s?")  # names of what a call returns
_UNCOMPUTED = re.compile(r"^(\w+) -> <class 'NoneType'>")
_STARTS = re.compile(r"/subprocess\.py$|/asyncio/base_subprocess\.py$")
_OBJECT = re.compile(r"'(str|NoneType)' object has no attribute '(\w+)'")
_OF_TENSORS = frozenset(
    {
        "size",
        "shape",
        "dim",
        "view",
        "device",
        "dtype",
        "float",
        "detach",
        "unsqueeze",
        "squeeze",
        "transpose",
        "permute",
        "mean",
        "contiguous",
    }
)
_OF_PROCESSORS = frozenset(
    {
        "image_processor",
        "video_processor",
        "feature_extractor",
        "image_token",
        "image_token_id",
        "video_token",
        "apply_chat_template",
    }
)
_AT_LINE = re.compile(r"in \"([^\"<]+)\", line (\d+)")


def of_file(raised: Raised) -> str:
    """Return advice on a file that does not exist or may not be used."""
    if raised.name not in _OF_FILES:
        return ""
    found = _FILE.search(raised.message)
    path = (found[2] or found[3]) if found else ""
    if not path and (absent := _ABSENT.search(raised.message)):
        path = absent[1]
    if not path:
        return ""
    node = f" on the node of {raised.line.process}" if raised.line.process else ""
    if raised.name == "FileExistsError":
        return (
            f"{path} exists already{node}: an earlier run left it (remove it, or name another folder), or "
            "another process or node created it at the same moment, which a network file system shows "
            "late: create it before the start, or start again"
        )
    if raised.name == "PermissionError":
        return f"give the job's user permission for {path}{node} (ls -ld shows its owner)"
    if raised.name == "FileNotFoundError" and (package := PACKAGE.search(path)):
        return (
            f"the installation of {package[1]} is incomplete: it lacks {path.rpartition('-packages/')[2]}. "
            f"Reinstall {distribution(package[1])}, or install a newer release{node}"
        )
    if raised.name == "FileNotFoundError" and (saved := _SAVED.match(path)):
        return (
            f"the checkpoint {saved[1]} is incomplete, saved by a run with another number of ranks or "
            f"another release, or not on this node: it lacks {path[saved.end() :]}. If saving was "
            "interrupted, remove that folder and resume from an earlier step "
            "(trainer.resume_mode=resume_path, trainer.resume_from_path=...); otherwise resume with "
            "the number of ranks that saved it, or merge it first (python -m verl.model_merger)"
        )
    if (
        raised.name == "FileNotFoundError"
        and "/" not in path
        and _STARTS.search(raised.frames[-1].path if raised.frames else "")
    ):
        return (
            f"the program {path} is not on the PATH of this process{node}: install it on every node, or add "
            "its folder to PATH before ray start (env_vars of the runtime_env for workers)"
        )
    if raised.name == "FileNotFoundError":
        return (
            f"{path} does not exist{node}: create or mount it on every node, or correct the setting that "
            "names it"
        )
    return (
        f"{path} is not a {'file' if raised.name == 'IsADirectoryError' else 'folder'}{node}: correct the "
        "setting that names it"
    )


def of_function(raised: Raised, place: Place) -> str:
    """Return advice on a function of the job that verl calls and that the job does not give."""
    called = _CALLED.search(place.code) if raised.name == "TypeError" and place.package == "verl" else None
    if called is None or "'NoneType' object is not callable" not in raised.message:
        return ""
    return f"give {place.at} {_FUNCTIONS[called[1]]}" if called[1] in _FUNCTIONS else ""


def of_object(raised: Raised, place: Place) -> str:
    """Return advice on an object that is not what the code takes it for.

    It is the output of a model, or a processor that was not found.
    """
    found = _OBJECT.search(raised.message) if raised.name == "AttributeError" else None
    if found is None:
        return ""
    if found[1] == "str" and found[2] in _OF_TENSORS:
        return (
            "a text is taken for a tensor: usually the output of a model of transformers was unpacked "
            "like a tuple, which yields the names of its fields since 4.0: pass return_dict=False to "
            "the model, use the fields (out.last_hidden_state, out.logits), or install the transformers "
            "that the code was written for"
        )
    if found[1] == "NoneType" and found[2] in _OF_PROCESSORS:
        return (
            f"no processor of the model was found, and {place.at} uses its {found[2]}: load it by hand "
            "to see why (AutoProcessor.from_pretrained(DIR)): usually a transformers that is too old "
            "or too new for the model (pip install -U transformers, within what the trainer accepts), "
            "or preprocessor_config.json is missing in the model's folder"
        )
    return ""


def of_data(raised: Raised, place: Place) -> str:
    """Return advice on a column that is missing from the job's data."""
    found = KEY.fullmatch(raised.message.strip())
    where = raised.frames[-1] if raised.frames else None
    if (
        raised.name == "AssertionError"
        and found is not None
        and ".keys()" in place.code
        and place.package == "verl"
    ):
        return (
            f"the batch has no {found[1]}, which {place.at} takes out of it: the trainer or recipe and "
            "the data set are of different releases. Use the recipe of the verl that runs (git log -1 "
            "in its tree), or the verl that the recipe names; a data set of your own (data.custom_cls) "
            f"must return {found[1]}"
        )
    if uncomputed := _UNCOMPUTED.match(raised.message):
        how = _KEYS_OF.get(
            uncomputed[1],
            (
                f"find what should compute {uncomputed[1]}: a setting that turns it on, or the worker or "
                "model that returns it"
            ),
        )
        return f"{uncomputed[1]} is None when {place.at} puts it into the batch: {how}"
    if raised.name != "KeyError" or where is None:
        return ""
    table = _TABLE.search(where.code)
    if table is not None and found is not None and place.package and raised.message.strip()[0] in "'\"":
        return (
            f"choose a {table[2]} that {place.words} has in {table[1]}: {found[1]} is not among them "
            f"({where.path.rpartition('/')[2]}:{where.line}); it may belong to another command, or to a "
            f"newer release of {place.words}"
        )
    if raised.message.strip().isdecimal() and any(package_of(frame) == "pandas" for frame in raised.frames):
        return (
            "a pandas DataFrame has no row of this number as its label: pass a datasets.Dataset "
            "(Dataset.from_pandas) to the trainer, or use iloc or reset_index(drop=True)"
        )
    if missing := _MISSING_KEY.search(raised.message):
        with_ = (
            f": {_KEYS_OF[missing[1]]}"
            if missing[1] in _KEYS_OF
            else ", or a custom worker, agent loop or reward must return it"
        )
        return f"the batch has no {missing[1]}, because the step that computes it did not run{with_}"
    setting = next(
        (match[1] for frame in reversed(raised.frames) if (match := _KEY_SETTING.search(frame.code))), ""
    )
    if absent := _NO_COLUMNS.search(raised.message):
        names = (absent[1] or absent[2]).replace("'", "")
        key = f"set data.{setting} to a column of the data" if setting else "name columns that the data has"
        return (
            f"{key}: it has no {names} (pandas.read_parquet(FILE).columns lists them); where it lies "
            f"within another column, such as extra_info, set {setting or 'prompt_key'} to that column, "
            f"and prompt_dict_keys or response_dict_keys to [{names}]"
        )
    if found is None:
        return ""
    if setting and place.package in {"verl", "pandas", "datasets"}:
        return (
            f"set data.{setting} to a column of the data: it has no {found[1]} "
            "(pandas.read_parquet(FILE).columns lists them)"
        )
    if place.package == "pandas":
        return (
            f"the table has no column {found[1]}: print its columns, and name a column that it has, or add "
            f"{found[1]} in the step that prepares the file (CSV, parquet or JSON) that was read"
        )
    is_recipe = _RECIPE.search(where.path) is not None
    subscript = re.search(rf"\[[\"']{found[1]}[\"']\]", where.code)
    if (
        subscript is not None
        and place.words
        and (place.package == "" or (is_recipe and place.package == "verl"))
    ):
        rows = (
            f"if it reads rows of the data, give every row {found[1]}, those of the validation data too: "
            "prepare both sets with the same steps"
        )
        return (
            (
                f"{rows}; if this recipe is unchanged and verl itself adds {found[1]}, take the recipe of "
                "the release of verl that runs, or read it with .get"
            )
            if is_recipe
            else rows
        )
    if place.package in _TRAINERS and re.search(rf"\[[\"']{found[1]}[\"']\]", where.code):
        return (
            f"the rows of the data have no {found[1]}, which {place.package} reads at "
            f"{where.path.rpartition('/')[2]}:{where.line}: rename the column, or map the data set to it"
        )
    if place.package not in {"", "verl"} and _OF_ROW.search(where.code):
        return (
            f"the rows of the data have no {found[1]}, which {place.package} reads at "
            f"{where.path.rpartition('/')[2]}:{where.line}: give this script the data set that it expects, "
            "as its preparation writes it, or rename the column; check that the paths of data set and model "
            "were not exchanged in the command"
        )
    if place.package != "verl" or not _IN_DATA.search(where.path):
        return ""
    subscripted = re.search(rf"\b(\w+)\[[\"']{found[1]}[\"']\]$", where.code)
    if subscripted is not None and _RETURNED.fullmatch(subscripted[1]):
        return (
            f"what {place.at} calls returns no {found[1]} ({where.code}): a reward function or manager, "
            "tool or worker of your own must return it; if none is used, this release of verl is at fault"
        )
    if re.search(rf"(?:meta_info|metrics|timing\w*)\[[\"']{found[1]}[\"']\]", where.code):
        return (
            f"the step before {place.at} does not return {found[1]} in this mode of the rollout: install a "
            "newer verl, or a custom agent loop or worker must return it; or use the mode of verl's "
            "examples (actor_rollout_ref.rollout.mode)"
        )
    return (
        f"the rows of the data have no {found[1]}, which verl reads at "
        f"{where.path.rpartition('/')[2]}:{where.line}: prepare the files of data.train_files and "
        "data.val_files with this column (the scripts in examples/data_preprocess show which ones), or "
        "name the column that holds it"
    )


def of_text(raised: Raised) -> str:
    """Return advice on a file that a parser cannot read."""
    if found := _AT_LINE.search(raised.message):
        return f"correct line {found[2]} of {found[1]}"
    return ""


def of_shapes(raised: Raised) -> str:
    """Return advice on weights whose shapes are not those of the model."""
    functions = " ".join(frame.function for frame in own_frames(raised.frames)[-NEAREST:])
    return mismatched(raised.message[: 4 * LONGEST], functions)
