"""The JSON schemas that ship with the package, a page for each."""

from __future__ import annotations

import importlib.resources
import json

_ENDING = ".schema.json"


def pages() -> dict[str, str]:
    """All of them by path."""
    data = importlib.resources.files("verl_doctor.toolkit") / "data"
    texts = {
        file.name.removesuffix(_ENDING): file.read_text("utf-8")
        for file in data.iterdir()
        if file.name.endswith(_ENDING)
    }
    titles = {name: json.loads(text).get("title", name) for name, text in texts.items()}
    made = {f"reference/schemas/{name}.md": page(titles[name], text) for name, text in texts.items()}
    return {**made, "reference/schemas/index.md": index(titles)}


def page(title: str, text: str) -> str:
    """One schema."""
    return f"# {title}\n\n````json\n{text.rstrip()}\n````\n"


def index(titles: dict[str, str]) -> str:
    """The list of schemas."""
    lines = [
        "# JSON schemas",
        "",
        (
            "Every command with `--format json` prints one document on stdout, and everything else on stderr. "
            "`schema_version` changes when a key is removed or changes its meaning; new keys may appear at any time."
        ),
        "",
        *(f"* [{titles[name]}]({name}.md)" for name in sorted(titles)),
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *sorted(titles),
        "```",
        "",
    ]
    return "\n".join(lines)
