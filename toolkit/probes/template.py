"""Compiles a chat template with the Jinja of the target, as transformers does, and reports why that fails.

Runs under the target's interpreter. It is passed as text, so it needs the standard library and Jinja only.
Called with a token, the file, and "json" if the template is the file's entry chat_template; or the template,
and "itself".
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

MOST_MEMORY = 4 * 1024**3  # bytes of this process: Jinja computes constants, however large, when it compiles


def problem(text: str) -> dict[str, Any]:
    """Return the message and the line of the first error; nothing if the template can be compiled."""
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class Generation(Extension):
        """The block with which transformers marks what the assistant writes."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja has it

        def parse(self, parser: Any) -> Any:
            parser.stream.skip(1)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    try:
        environment.compile(text)
    except TemplateSyntaxError as error:
        return {"message": str(error.message)[:300], "line": error.lineno}
    return {}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    token, name, kind = sys.argv[1:4]
    template = name if kind == "itself" else Path(name).read_text("utf-8")
    text = json.loads(template)["chat_template"] if kind == "json" else template
    print(f"\n{token}{json.dumps(problem(text))}")
