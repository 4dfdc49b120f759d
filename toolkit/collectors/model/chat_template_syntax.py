"""Whether Jinja compiles the chat template of the job's model.

The target's own is called, for a template that looks doubtful.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import template as probe
from verl_doctor.toolkit.system.child import ending, run_probe

_LIMIT = 20.0  # seconds: importing Jinja takes a tenth of one


@dataclass(frozen=True)
class ChatTemplateError:
    """Jinja's message for the template in a file or setting, and the template's own line."""

    file: str
    message: str
    line: int


@collector(timeout=30)
def chat_template_error(
    machine: Machine, template: ChatTemplate, interpreter: Interpreter
) -> ChatTemplateError | Unknown:
    """Compile the template with the target's Jinja."""
    if not template.is_doubtful:
        return Absent("the chat template has no sign of a syntax error")
    kind = "itself" if template.text else "json" if template.found_in.endswith(".json") else "text"
    source = template.text or template.found_in
    result = run_probe(machine, interpreter.executable, probe, source, kind, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    output, found = result
    if not isinstance(found, dict):
        return Unknown(f"the chat template could not be compiled: {ending(output, _LIMIT)}")
    if not found:
        return Absent("Jinja compiles the chat template")
    return ChatTemplateError(template.found_in, str(found["message"]), int(found["line"]))
