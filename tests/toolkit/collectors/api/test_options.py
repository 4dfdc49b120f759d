"""Options that verl writes for vLLM's command line, by name and by the keys of dicts."""

from __future__ import annotations

import pytest
from support.miniatures.source_trees import SERVER, compare, write

from verl_doctor.toolkit.collectors.api.uses import VllmUses

VLLM = {
    "entrypoints/cli/serve.py": """
        from vllm.utils import Parser
        def cmd_init():
            Parser().add_argument("--dtype")
            Parser().add_argument("--max-model-len")
    """,
    "utils.py": "class Parser:\n    def parse_args(self, args): ...\n    def add_argument(self, *names): ...",
}
LOOP = """
            for k, v in args.items():
                if isinstance(v, bool):
                    if v:
                        words.append(f"--{k}")
                else:
                    words.append(f"--{k}")
                    words.append(str(v))
"""
START = """
    import vllm
    from verl.utils.spelling import spell
    from vllm.utils import Parser
    class Server:
        def launch(self):
            args = {"dtype": 1, "max_model_len": 2, "gone": 3, "not_wanted": False, "nor_this": None}
            words = ["serve", "--plain", self.model, f"--{self.computed}"]
            %s
            parser = Parser()
            words = parser.parse_args(args=words)
"""


def options(found: VllmUses) -> dict[str, str]:
    return {use.name: use.when for use in found.uses if use.kind == "option" and use.breaks}


def server(feed: str) -> str:
    return START % feed.strip()


def test_each_option_built_in_a_loop_is_judged(tmp_path):
    found = compare(tmp_path, server(LOOP), VLLM)
    assert options(found) == {"--gone": "", "--plain": ""}
    (use,) = [use for use in found.uses if use.name == "--gone"]
    assert (use.line, use.paths) == (7, ("async rollout",))
    assert use.read_from.endswith("serve.py")


@pytest.mark.parametrize(
    "feed", ["words += spell(args)", "words.extend(spell(args))", "words = words + spell(args)"]
)
def test_options_built_by_a_verl_function_are_judged(tmp_path, feed):
    spelling = "import vllm\ndef spell(config):\n    return [f'--{k}' for k in config]"
    files = {"workers/rollout/vllm_rollout/__init__.py": "", "utils/spelling.py": spelling}
    write(tmp_path / "verl", files)
    assert options(compare(tmp_path, server(feed), VLLM)) == {"--gone": "", "--plain": ""}


def test_conditions_around_a_key_are_shown(tmp_path):
    more = """if self.nodes > 1:
                args.update({"node_rank": self.rank})
            if self.lora:
                args["enable_lora"] = True
            more = {"dtypes": 1}
            args.update(more)
    """
    assert options(compare(tmp_path, server(more + LOOP), VLLM)) == {
        "--gone": "",
        "--plain": "",
        "--node-rank": "self.nodes > 1",
        "--enable-lora": "self.lora",
        "--dtypes": "",
    }


def test_option_behind_a_version_test_is_not_passed(tmp_path):
    more = """if vllm.__version__ == "0.1":
                args["old"] = 1
    """
    assert "--old" not in options(compare(tmp_path, server(more + LOOP), VLLM))


@pytest.mark.parametrize(
    "text",
    [
        server("").replace("from vllm.utils", "from argparse_of_verl"),
        server(LOOP.replace("--{k}", "{k}")).replace("--plain", "plain"),
        server("words = unknown(args)").replace("--plain", "plain"),
    ],
)
def test_arguments_of_other_commands_and_plain_words_are_ignored(tmp_path, text):
    assert options(compare(tmp_path, text, VLLM)) == {}


def test_options_are_unknown_without_the_command(tmp_path):
    found = compare(tmp_path, server(LOOP), {"utils.py": VLLM["utils.py"]})
    assert options(found) == {}
    assert {use.name for use in found.uses if use.resolution == "unknown"} >= {"--gone", "--dtype"}


def test_options_are_judged_even_if_the_parser_moved(tmp_path):
    found = compare(tmp_path, server(LOOP), {**VLLM, "utils.py": "", "elsewhere.py": VLLM["utils.py"]})
    assert options(found) == {"--gone": "", "--plain": ""}
    assert SERVER in next(use.path for use in found.uses if use.kind == "option")
