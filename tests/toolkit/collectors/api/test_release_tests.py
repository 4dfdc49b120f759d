"""Tests of a release in verl's code: which branch the installed library takes."""

from __future__ import annotations

import pytest
from support.miniatures.small_engine import ENGINE, lines
from support.miniatures.source_trees import compare

# Tests of vLLM's release in verl 0.2 to 0.9.1, each true for 0.12.0 and quoted verbatim.
VERSION_TESTS = {
    "parse": "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) >= version.parse('0.11.0'):",
    "a constant": "from packaging import version\nimport vllm\nV = version.parse(vllm.__version__)\nif V > version.parse('0.11.0'):",
    "two bounds": "from packaging import version\nimport vllm\nV = version.parse(vllm.__version__)\nif V >= version.parse('0.11.0') and V < version.parse('0.13.0'):",
    "a chain": "from packaging import version\nimport vllm\nif version.parse('0.11.0') <= version.parse(vllm.__version__) < version.parse('0.14.0'):",
    "equality of texts": "import vllm\nif vllm.__version__ == '0.12.0':",
    "equality of versions": "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) == version.parse('0.12.0'):",
    "a start": "import vllm\nif vllm.__version__.startswith('0.12'):",
    "no start": "from importlib.metadata import version\np = version('vllm')\nif not p.startswith('0.6.3') and p != '0.6.3':",
    "metadata": "from importlib.metadata import version\nfrom packaging.version import Version\nif Version(version('vllm')) > Version('0.6.3'):",
    "a list": "import vllm\nfrom packaging import version as vs\nif vs.parse(vllm.__version__) not in [vs.parse('0.5.4'), vs.parse('0.6.3')]:",
    "a tuple": "import vllm\nif vllm.__version__ not in ('0.5.4', '0.6.3'):",
    "a local helper": "from importlib.metadata import PackageNotFoundError, version\nfrom packaging import version as vs\ndef get_version(pkg):\n    try:\n        return version(pkg)\n    except PackageNotFoundError:\n        return None\nname = 'vllm'\np = get_version(name)\nif vs.parse(p) >= vs.parse('0.6.6.post2.dev252+g8027a724'):",
    "is_version_ge": "from verl.utils.vllm_utils import is_version_ge\nif is_version_ge(pkg='vllm', minver='0.7.3'):",
    "is_version_ge with a default": "from verl.utils.vllm_utils import is_version_ge\nif is_version_ge(minver='0.7.3'):",
    "numbers taken out": "import os, re\nfrom importlib.metadata import version\nfrom packaging.version import Version\np = version('vllm')\nif 'ROCM_PATH' in os.environ:\n    m = re.match(r'(\\d+\\.\\d+\\.?\\d*)', p)\n    if m:\n        p = m.group(1)\n    else:\n        raise ValueError(p)\nif Version(p) > Version('0.6.3'):",
    "numbers taken out at once": "import re\nfrom importlib.metadata import version\nfrom packaging import version as vs\np = version('vllm')\np = re.match(r'(\\d+\\.\\d+\\.?\\d*)', p).group(1)\nif vs.parse(p) >= vs.parse('0.7.0'):",
    "an else": "import vllm\nif vllm.__version__ == '0.6.3':\n    pass\nelif vllm.__version__ == '0.5.4':\n    pass\nelse:",
}


HELPER = """
def is_version_ge(pkg="vllm", minver="0.7.3"):
    return compare(pkg, minver)
"""


@pytest.mark.parametrize(
    ("test", "version"),
    [
        pytest.param(test, version, id=f"{name}, {version}")
        for name, test in VERSION_TESTS.items()
        for version in ("0.12.0", "0.12.0+cu129")
        if version == "0.12.0" or not name.startswith("equality")  # a version with a suffix is another one
    ],
)
def test_every_form_of_version_test_is_evaluated(tmp_path, test, version):
    server = f"{test}\n    from vllm.engine import gone\n"
    if not test.endswith("else:"):
        server += "else:\n    import vllm.gone\n"
    found = compare(tmp_path, server, ENGINE, version, utils__vllm_utils=HELPER)
    (use,) = [use for use in found.uses if use.resolution == "missing"]
    assert (use.name, use.breaks, use.when, bool(use.paths)) == ("vllm.engine:gone", True, "", True)


THIRD_PARTY = """
from importlib.metadata import version
package_version = version("vllm")
vllm_version = None
if package_version == "0.5.4":
    vllm_version = "0.5.4"
elif package_version.startswith("0.12"):
    from vllm import Args
    told_version = package_version
else:
    vllm_version = find()
"""


@pytest.mark.parametrize(
    "test",
    [
        "vllm_version not in ('0.5.4', '0.6.3')",
        "vllm_version != '0.5.4'",
        "told_version == '0.12.0'",
        "told_version in ('0.12.0', '0.6.3')",
    ],
)
def test_version_stored_in_another_verl_module_is_evaluated(tmp_path, test):
    name = test.split()[0]
    server = f"from verl.third_party import {name}\nif {test}:\n    from vllm.engine import gone\nelse:\n    import vllm.gone"
    assert lines(tmp_path, server, third_party=THIRD_PARTY) == [(3, "import", "vllm.engine:gone")]


def test_circular_version_imports_leave_the_version_open(tmp_path):
    server = "from verl.third_party import vllm_version\nif vllm_version == '0.12.0':\n    from vllm.engine import gone"
    other = "import vllm\nfrom verl.workers.rollout.vllm_rollout.vllm_async_server import vllm_version"
    assert lines(tmp_path, server, third_party=other) == []


def test_function_for_another_release_is_not_reported(tmp_path):
    server = """
        import vllm
        from packaging import version
        def old():
            from vllm.engine import gone
        def new(): ...
        patch = new if version.parse(vllm.__version__) >= version.parse("0.11") else old
    """
    assert lines(tmp_path, server) == []
