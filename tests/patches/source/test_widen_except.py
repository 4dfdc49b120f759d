"""The repair of VLLM102 where verl has a handler that misses: a name that is missing raises ImportError."""

from __future__ import annotations

import pytest
from support.miniatures.patched_tree import PatchedTree

from verl_doctor.checks.api.vllm_import_missing import vllm_import_missing
from verl_doctor.patches.source.widen_except import widen_except
from verl_doctor.toolkit.change import Refusal
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.testing import run_check

OLD = {"worker.py": "class Wrapper: side = 'old'\n", "v1.py": "class Wrapper: side = 'another'\n"}
NEW = {"worker.py": "", "v1.py": "class Wrapper: side = 'new'\n"}
GONE = {"v1.py": "class Wrapper: side = 'new'\n"}

FORMS = {
    "a fallback": "try:\n    from vllm.worker import Wrapper\nexcept ModuleNotFoundError:\n    from vllm.v1 import Wrapper\n",
    "among others": "try:\n    from vllm.worker import Wrapper\nexcept (KeyError, ModuleNotFoundError):  # why\n    from vllm.v1 import Wrapper\n",
    "with a name": "try:\n    from vllm.worker import Wrapper\nexcept ModuleNotFoundError as e:\n    from vllm.v1 import Wrapper\n",
    "in a function": "def f():\n    try:\n        from vllm.worker import Wrapper\n    except ModuleNotFoundError:\n        from vllm.v1 import Wrapper\n    return Wrapper\nWrapper = f()\n",
    "the inner of two": "try:\n    try:\n        from vllm.worker import Wrapper\n    except ModuleNotFoundError:\n        from vllm.v1 import Wrapper\nexcept KeyError:\n    pass\n",
}


def tree(folder, server, new=NEW):
    return PatchedTree(folder, server, OLD, new, vllm_import_missing, widen_except)


@pytest.mark.parametrize("form", FORMS)
def test_repaired_file_works_on_both_sides(tmp_path, form):
    one = tree(tmp_path, FORMS[form])
    (finding,) = one.judged("new").findings
    assert "its except " in finding.message
    assert "does not catch this" in finding.message
    text = one.repair()
    assert one.judged("new").status == "pass"
    assert [one.run(side)["Wrapper"].side for side in ("old", "new")] == ["old", "new"]
    assert text.count("# verl-doctor: VLLM102") == 2


def test_caught_missing_module_passes(tmp_path):
    assert tree(tmp_path, FORMS["a fallback"], GONE).judged("new").status == "pass"


def test_handler_that_only_re_raises_is_not_a_fallback(tmp_path):
    server = "try:\n    from vllm.worker import Wrapper\nexcept ModuleNotFoundError:\n    raise\n"
    assert {finding.fix for finding in tree(tmp_path, server).judged("new").findings} == {"moved-import"}


@pytest.mark.parametrize("other", ["except ImportError:", "except (OSError, ImportError):", "except:"])
def test_missing_name_handled_otherwise_by_verl_is_refused(tmp_path, other):
    server = f"try:\n    from vllm.worker import Wrapper\nexcept ModuleNotFoundError:\n    Wrapper = None\n{other}\n    raise\n"
    assert "in another way" in tree(tmp_path, server).refusal()


def test_file_changed_since_it_was_read_is_refused(tmp_path):
    one = tree(tmp_path, FORMS["a fallback"])
    uses = one.uses("new")
    (finding,) = run_check(vllm_import_missing, uses).findings
    for content in ("from vllm.worker import Wrapper\n", "\n" + FORMS["a fallback"]):
        one.path.write_text(content)
        assert isinstance(widen_except.plan(finding, uses, SourceFiles(), Marker()), Refusal)
