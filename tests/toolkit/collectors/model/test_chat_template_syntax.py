"""Chat templates with and without syntax errors. Jinja is the oracle: what it refuses must look doubtful."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter

from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.chat_template_syntax import ChatTemplateError, chat_template_error
from verl_doctor.toolkit.collectors.model.template_doubts import looks_doubtful
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import template as probe

CHATML = (
    "{%- for message in messages %}\n  {{- '<|im_start|>' + message['role'] + '\\n' }}\n"
    "  {%- if message.tool_calls is defined and loop.index0 > 0 %}{{ message.tool_calls | tojson(indent=2) }}{% endif %}\n"
    "  {%- set ns = namespace(last=messages[-1].content.split('%}')) %}{# a comment {{ #}\n"
    "  {% generation %}{{ message['content'] | trim }}{% endgeneration %}\n{%- endfor %}\n"
    "{%- macro render(x) %}{{ x }}{% endmacro %}{% set y %}z{% endset %}{{ raise_exception('}}') if none }}"
)


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        "plain text",
        CHATML.replace("{%- endfor %}", ""),
        CHATML.replace("{% endif %}", "{% endfor %}"),
        CHATML.replace("endmacro", "endmacros"),
        CHATML.replace("| trim", "| trims"),
        CHATML.replace("['role']", "['role'"),
        CHATML.replace("'<|im_start|>'", "'<|im_start|>"),
        CHATML.replace("{{ x }}", "{{ x }"),
        CHATML.replace("{% set y %}", "{% sett y %}"),
        CHATML.replace(" #}", ""),
        "{% if a %}",
        "{{ a",
        "{% endif %}",
    ],
)
def test_invalid_templates_look_doubtful(template: str) -> None:
    refused = bool(probe.problem(template))
    assert looks_doubtful(template) or not refused
    assert refused == (template not in (CHATML, "plain text"))


def test_common_templates_are_not_doubtful() -> None:
    assert not looks_doubtful(CHATML)


@pytest.mark.slow
def test_doubtful_template_is_compiled(tmp_path: Path) -> None:
    python = replace(interpreter(), executable=sys.executable)
    config = tmp_path / "tokenizer_config.json"
    doubtful = ChatTemplate(str(tmp_path), str(config), is_doubtful=True)
    config.write_text(json.dumps({"chat_template": "a\n{% for m in messages %}"}))
    found = chat_template_error.collect(Machine(), doubtful, python)
    assert isinstance(found, ChatTemplateError)
    assert (found.file, found.line, "end of template" in found.message) == (str(config), 2, True)
    config.write_text(json.dumps({"chat_template": "{% for m in messages %}{% endfor %}"}))
    assert isinstance(chat_template_error.collect(Machine(), doubtful, python), Absent)
    assert isinstance(
        chat_template_error.collect(Machine(), replace(doubtful, is_doubtful=False), python), Absent
    )
