"""All places where pip and uv read their index configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.index import settings as module
from verl_doctor.toolkit.index.settings import PYPI, IndexSettings, index_settings
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import UsageError


@pytest.fixture(autouse=True)
def nothing_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SYSTEM_PIP", tmp_path / "etc" / "pip.conf")
    monkeypatch.setattr(module, "_SYSTEM_UV", tmp_path / "etc" / "uv.toml")


def read(tmp_path: Path, **environ: str) -> IndexSettings:
    return index_settings(machine(tmp_path, **environ), tmp_path / "env")


def machine(tmp_path: Path, **environ: str) -> Machine:
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    home = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}
    return Machine({**home, **environ}, folder)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_pypi_is_the_default_index(tmp_path: Path) -> None:
    assert read(tmp_path).indexes == (PYPI,)


def test_pip_configuration_files_override_each_other(tmp_path: Path) -> None:
    places = [
        tmp_path / "etc" / "pip.conf",
        tmp_path / "home" / ".pip" / "pip.conf",
        tmp_path / "home" / ".config" / "pip" / "pip.conf",
        tmp_path / "env" / "pip.conf",
    ]
    for place in places:
        write(place, f"[global]\nindex-url = https://{place.parent.name.strip('.')}/simple\n")
        assert read(tmp_path).indexes == (f"https://{place.parent.name.strip('.')}/simple",)
    write(places[-1], "[global]\nindex_url = https://a\n[install]\nindex-url = https://b\n")
    assert read(tmp_path).indexes == ("https://b",)
    assert read(tmp_path, PIP_INDEX_URL="https://c").indexes == ("https://c",)


def test_pip_config_file_replaces_the_files_of_the_user(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".pip" / "pip.conf", "[global]\nindex-url = https://user\n")
    write(tmp_path / "project" / "own.conf", "[global]\nextra-index-url =\n  https://one\n  https://two\n")
    assert read(tmp_path, PIP_CONFIG_FILE="own.conf").indexes == (PYPI, "https://one", "https://two")
    assert read(tmp_path, PIP_CONFIG_FILE=os.devnull).indexes == (PYPI,)


def test_find_links_folders_are_made_absolute(tmp_path: Path) -> None:
    found = read(tmp_path, PIP_FIND_LINKS="wheels ~/more https://page", PIP_NO_INDEX="1")
    assert found.find_links == (str(tmp_path / "project/wheels"), str(tmp_path / "home/more"), "https://page")
    assert found.indexes == ()
    assert read(tmp_path, PIP_NO_INDEX="0").indexes == (PYPI,)


def test_uv_configuration_is_used_if_pip_has_none(tmp_path: Path) -> None:
    write(
        tmp_path / "home/.config/uv/uv.toml",
        '[[index]]\nurl = "https://main"\ndefault = true\n[[index]]\nurl = "https://more"\nname = "m"\n'
        '[[index]]\nurl = "https://only-torch"\nexplicit = true\n',
    )
    assert read(tmp_path).indexes == ("https://main", "https://more")
    assert read(tmp_path, UV_DEFAULT_INDEX="in=https://own").indexes == ("https://own", "https://more")
    assert read(tmp_path, PIP_INDEX_URL="https://pip").indexes == ("https://pip", "https://more")
    write(tmp_path / "project" / "pyproject.toml", '[tool.uv.pip]\nindex-url = "https://project"\n')
    assert read(tmp_path, UV_INDEX="https://e").indexes == ("https://project", "https://e")


def test_command_line_replaces_the_configuration(tmp_path: Path) -> None:
    here = machine(tmp_path, PIP_INDEX_URL="https://pip", PIP_FIND_LINKS="wheels")
    assert index_settings(here, tmp_path, "https://named").indexes == ("https://named",)
    assert index_settings(here, tmp_path, "https://named").find_links == ()
    folder = index_settings(here, tmp_path, None, ["mine"])
    assert (folder.indexes, folder.find_links) == ((), (str(tmp_path / "project/mine"),))


def test_certificates_come_from_pip_or_the_environment(tmp_path: Path) -> None:
    assert read(tmp_path, SSL_CERT_FILE="/s", REQUESTS_CA_BUNDLE="/r").ca == "/r"
    assert read(tmp_path, REQUESTS_CA_BUNDLE="/r", PIP_CERT="/p").ca == "/p"
    assert read(tmp_path, PIP_TRUSTED_HOST="a b").trusted == ("a", "b")


def test_unreadable_configuration_is_named_without_its_content(tmp_path: Path) -> None:
    write(tmp_path / "env" / "pip.conf", "index-url = https://me:s3cret@host\n")
    with pytest.raises(UsageError, match="is not a configuration that pip can read") as raised:
        read(tmp_path)
    assert "s3cret" not in str(raised.value)
    (tmp_path / "env" / "pip.conf").unlink()
    write(tmp_path / "project" / "uv.toml", '[[index]]\nurl = "https://me:s3cret@host\n')
    with pytest.raises(UsageError, match=r"is not a configuration that uv can read: .*line 2") as raised:
        read(tmp_path)
    assert "s3cret" not in str(raised.value)


def test_credentials_are_hidden_in_the_repr(tmp_path: Path) -> None:
    assert "s3cret" not in repr(read(tmp_path, PIP_INDEX_URL="https://me:s3cret@host/simple"))
