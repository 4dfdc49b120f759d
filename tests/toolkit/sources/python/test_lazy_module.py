"""Packages that replace themselves by a lazy module: which names they serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures.source_trees import write

from verl_doctor.toolkit.sources.python.answers import Missing, Opaque, Present, Unresolved
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import SourceTree
from verl_doctor.toolkit.sources.python.symbols import Class

TOP = """
from typing import TYPE_CHECKING
from .utils import OptionalDependencyNotAvailable, _LazyModule, is_torch_available

_import_structure = {"configs": ["BaseConfig"], "cli": []}
try:
    if not is_torch_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from .utils import dummies
    _import_structure["utils.dummies"] = [name for name in dir(dummies)]
else:
    _import_structure["modeling"] = ["BaseModel"]
    _import_structure["modeling"].append("OtherModel")
    _import_structure["generation"] = []
    _import_structure["generation"].extend(["Generator"])

if TYPE_CHECKING:
    from .configs import BaseConfig, ForTypesOnly
    from .models import *
else:
    import sys
    _import_structure = {k: set(v) for k, v in _import_structure.items()}
    import_structure = define_import_structure(Path(__file__).parent / "models", prefix="models")
    import_structure[frozenset({})].update(_import_structure)
    sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], import_structure, module_spec=__spec__)
"""
PART = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from .modeling_bee import *
else:
    import sys
    _file = globals()["__file__"]
    sys.modules[__name__] = _LazyModule(__name__, _file, define_import_structure(_file), module_spec=__spec__)
"""
LIBRARY = {
    "__init__.py": TOP,
    "utils/__init__.py": "",
    "configs.py": "class BaseConfig: ...\nclass ForTypesOnly: ...\n",
    "modeling.py": "class BaseModel: ...\nclass OtherModel: ...\n",
    "generation.py": "class Generator: ...\n",
    "models/bee/__init__.py": PART,
    "models/bee/modeling_bee.py": """
        class BeeModel: ...
        class Hidden: ...
        @requires(
            backends=("torch",),
        )
        class Decorated: ...
        class BeeTokenizer: ...
        __all__ = [
            "BeeModel",
            "BeeTokenizer",
        ]
        """,
    "models/bee/modular_bee.py": "class Draft: ...\n__all__ = ['Draft']\n",
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources([SourceTree(write(tmp_path / "lib", LIBRARY), "lib")])


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("BaseConfig", "lib.configs"),
        ("BaseModel", "lib.modeling"),
        ("OtherModel", "lib.modeling"),
        ("Generator", "lib.generation"),
        ("BeeModel", "lib.models.bee.modeling_bee"),
        ("Decorated", "lib.models.bee.modeling_bee"),
        ("BeeTokenizerFast", "lib.models.bee.modeling_bee"),
    ],
)
def test_lazy_name_resolves_to_its_defining_module(sources: Sources, name: str, home: str) -> None:
    answer = sources.import_name("lib", name)
    assert isinstance(answer, Present)
    assert isinstance(answer.definition, Class)
    assert answer.definition.module == home


@pytest.mark.parametrize("name", ["Nothing", "Hidden", "Draft", "ForTypesOnly"])
def test_unlisted_name_is_missing(sources: Sources, name: str) -> None:
    assert isinstance(sources.import_name("lib", name), Missing)


def test_subpackage_exports_its_own_files(sources: Sources) -> None:
    assert isinstance(sources.import_name("lib.models.bee", "BeeModel"), Present)
    assert isinstance(sources.import_name("lib.models.bee", "modeling_bee"), Present)
    assert isinstance(sources.import_name("lib.models.bee", "BaseConfig"), Missing)


@pytest.mark.parametrize(
    "structure",
    [
        "structure = computed()",
        "structure = {}\nstructure['a'] = computed()",
        "structure = {computed(): ['A']}",
        "structure = other",
    ],
)
def test_unreadable_structure_leaves_other_names_open(tmp_path: Path, structure: str) -> None:
    text = f"import sys\n{structure}\nsys.modules[__name__] = _LazyModule(__name__, __file__, structure)\n"
    sources = Sources([SourceTree(write(tmp_path / "lib", {"__init__.py": text}), "lib")])
    assert isinstance(sources.import_name("lib", "Anything"), Unresolved)


def test_listed_name_without_a_source_file_exists(tmp_path: Path) -> None:
    text = "import sys\nsys.modules[__name__] = _LazyModule(__name__, __file__, table)\n"
    files = {"__init__.py": f"table = {{'_C': ['Compiled']}}\n{text}"}
    answer = Sources([SourceTree(write(tmp_path / "lib", files), "lib")]).import_name("lib", "Compiled")
    assert isinstance(answer, Present)
    assert isinstance(answer.definition, Opaque)


def test_module_created_at_run_time_is_not_missing(tmp_path: Path) -> None:
    text = """
        import sys, types
        def _alias(alias, target):
            module = types.ModuleType(alias)
            sys.modules[alias] = module
        _alias(f"{__name__}.old_place", ".new_place")
        for model in ("bee",):
            _alias(f"{__name__}.models.{model}.{model}_fast", ".models")
        """
    files = {"__init__.py": text, "new_place.py": "class A: ...\n", "models/bee/__init__.py": ""}
    sources = Sources([SourceTree(write(tmp_path / "lib", files), "lib")])
    assert isinstance(sources.import_name("lib.old_place", "A"), Unresolved)
    assert isinstance(sources.import_name("lib.models.bee.bee_fast", "A"), Unresolved)
    assert isinstance(sources.import_name("lib.older_place", "A"), Missing)


def test_star_import_for_type_checkers_binds_nothing(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .part import *\n"
    files = {"__init__.py": text, "part.py": "class A: ...\n"}
    sources = Sources([SourceTree(write(tmp_path / "lib", files), "lib")])
    assert isinstance(sources.import_name("lib", "A"), Missing)


def test_package_importing_its_own_submodule_binds_the_module(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from lib import part\nfrom lib.part import get\nfrom lib.named import named\n",
        "part.py": "def get(): ...\n",
        "named.py": "def named(): ...\nclass Beside: ...\n",
        "user.py": "from lib.named import Beside\n",
    }
    sources = Sources([SourceTree(write(tmp_path / "lib", files), "lib")])
    assert isinstance(sources.import_name("lib", "get"), Present)
    assert isinstance(sources.import_name("lib.user", "Beside"), Present)
