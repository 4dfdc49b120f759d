"""The JSON schemas of the commands' documents, a page for each."""

from __future__ import annotations

import json

from verl_doctor.toolkit.commands.explain.schemas import SCHEMAS, schema_text


def pages() -> dict[str, str]:
    """All of them by path."""
    texts = {name: schema_text(name) for name in SCHEMAS}
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
            "Every command with `--format json` prints one document on stdout, and everything else on "
            "stderr. `schema_version` changes when a key is removed or changes its meaning; new keys may "
            "appear at any time."
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
