"""What a message requests or excludes: values, settings, commands, combinations that do not work."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.installed import this_release
from verl_doctor.toolkit.logs.advice.places import LONGEST, MOST_FIELDS, OUTSIDE, Place
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import Raised

# A command of pip that a message gives, with requirements that have a release: the words around it may not be
# part of it.
_COMMAND = re.compile(
    r"((?:uv )?pip3? install (?:-{1,2}[\w-]+ )*(?:['\"]?[A-Za-z][\w.\[\]-]*(?:[=<>!~]=?[\w.,<>=!*]+)"
    r"['\"]?)(?: ['\"]?[A-Za-z][\w.\[\]-]*[=<>!~]=?[\w.,<>=!*]+['\"]?)*)"
)
# A sentence, which may contain a decimal number, and phrases with which a program requests something.
_SENTENCE = re.compile(r"(?:[^.!?;]|\.(?=\S))+[.!?;]?")
_ASKS = re.compile(
    r"(?<!-)\b(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Mm]ake sure|[Ee]nsure|[Uu]se (?!of)|[Ss]et |[Ii]ncrease|"
    r"[Dd]ecrease|[Rr]educe|(?:[Rr]e)?[Ii]nstall|[Uu]pgrade|[Dd]owngrade|[Uu]pdate|[Ss]pecify|"
    r"[Dd]id you (?:mean|forget)|[Yy]ou (?:can|may|could|need|have) (?!see|find)|[Aa]lternatively|"
    r"[Ss]witch to|as a workaround|(?:to|[Tt]o) (?:fix|solve|resolve|avoid|enable|disable|bypass"
    r"|override) )\b|^(?:[Pp]ass|[Aa]dd|[Rr]un|[Ee]nable|[Dd]isable|[Rr]emove|[Pp]rovide|[Cc]hoose|"
    r"[Cc]all|[Cc]hange|[Cc]heck)\b|\bby (?:passing|setting|using|adding|specifying|installing"
    r"|running)\b|\bmust\b|\bMUST\b|\b[Ss]hould (?:be|have|match)\b|\b(?:needs?|has|have) to\b"
    r"|\brequires?\b|\b(?:is|are) required\b|\bonly (?:supports?|supported|available|works?)\b"
    r"|\binstead\b|\b(?:[Vv]alid|[Aa]llowed|[Pp]ossible|[Ss]upported|[Aa]vailable|current) (?:values?"
    r"|options?|choices?|columns?|keys?|dtypes?|types?|methods?|backends?|modes?|formats?|versions?"
    r"|names?)\b|\b[Cc]hoo?se from\b|\b[Aa]vailable: "
)
_SUGGESTION = re.compile(r"\. Did you mean: '\w+'\?$")  # by Python, of a similar name in the same object
_MOST_WORDS = 400  # characters of the demands that are repeated
# Sentences that state which two things do not go together, and those that only one kind of thing does.
_APART = re.compile(
    r"(.+?) (?:(?:(?:is|are) )?(?:not (?:yet |currently )?(?:compatible|supported|implemented|available"
    r"|allowed)|incompatible|unsupported) (?:with|for|on|when|by|in|if|while|using)|(?:does not|doesn't"
    r"|do not|don't|cannot|can't|can not) (?:yet |currently )?(?:support|work with|work on|be used "
    r"(?:together )?(?:with|for|in)|be combined with|be enabled (?:with|when))) (.+)"
)
_UNSUPPORTED = re.compile(
    r"\b(?:not (?:yet |currently )?(?:supported(?! between instances)|implemented)|[Uu]nsupported"
    r"(?! operand)|(?:does not|doesn't|do not|don't|cannot|can't) (?:yet |currently )?support)\b"
)
_TIME = re.compile(r" (?:yet|right now|currently|at the moment|for now)$")
_NAMELESS = frozenset({"it", "this", "that", "they", "we", "you", "which", "there", "model", "the model"})
_FIELD = re.compile(
    r"([\w.\[\]-]+)\n[ \t]*(?![ \t]|Value error"
    r"|Assertion failed)(.+?) \[type=(\w+), input_value=(.{1,80}?)(?:, input_type=\w+)?\]"
)
_VALIDATED = re.compile(r"^\d+ validation errors? for \w+ |Value error, ")
_OF_MODEL = re.compile(r"validation errors? for (\w+)")
_VARIABLE = re.compile(r"\b[Ss]et(?:ting)? [`'\"]?([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b|\bexport ([A-Z][A-Z0-9_]+)=")
# Sentences that only refer to a text or a tracker.
_REFERS = re.compile(
    r"[Ff]or (?:more |further )?(?:information|details)\b|[Pp]lease (?:see|refer|visit|report|file|open)\b"
)
# Demands that a program cannot follow: they state what went wrong within it.
_OF_PYTHON = re.compile(
    r"^\w+ indices must be |^'?\w+'? must be (?:str|int|an? \w+), not |\b[Ss]izes? of tensors? |"
    r"[Tt]ensors? must (?:have|match|be)|must match the (?:size|shape|existing)|Conversation roles"
    r"|\bmust agree with\b|\bshould (?:be|have|match) (?:a |an )?(?:\dD? |\d-?[dD] )?(?:tensor|shape"
    r"|v\()"
)
_SILENT = frozenset({"RayTaskError", "KeyError", "CalledProcessError", "OutOfMemoryError"})
_CONDITION = re.compile(
    r"\b(?:[Ww]hen|[Ii]f) `?([a-z]+(?:_[a-z]+)+)`? (?:is|=|==) ?`?(?:True|enabled|set to True)\b"
)


def demanded(raised: Raised) -> str:
    """Return what the message demands, or the values that it lists."""
    text = _SUGGESTION.sub("", _VALIDATED.sub("", " ".join(raised.plain.split())))
    if raised.name in _SILENT or len(text) > LONGEST or _OF_PYTHON.search(text):
        return ""
    if raised.name not in OUTSIDE and (command := _COMMAND.search(text)):
        return (
            f"{for_shell(command[1].strip())}, as the message requests, with the job's Python, on every node"
        )
    demands = [
        sentence.strip(" .;")
        for sentence in _SENTENCE.findall(text)
        if _ASKS.search(sentence.strip()) and not _REFERS.search(sentence)
    ]
    while len(demands) > 1 and sum(map(len, demands)) > _MOST_WORDS:
        del demands[0]
    if not demands:
        return ""
    request = f"follow the message: {'. '.join(demands)}"
    if condition := next(filter(None, map(_CONDITION.search, demands)), None):
        request += f"; or set {condition[1]}=False"
    if variable := next(filter(None, map(_VARIABLE.search, demands)), None):
        request += (
            f"; set {variable[1] or variable[2]} before ray start on every node, or in env_vars of the "
            "runtime_env: workers do not get it from the shell that submits the job"
        )
    return request


def for_shell(command: str) -> str:
    """A command of pip with its bounds quoted: the shell would take > and < for redirections."""
    return " ".join(
        f"'{word}'" if re.search("[<>]", word) and not word.startswith(("'", '"')) else word
        for word in command.split()
    )


def of_fields(raised: Raised) -> str:
    """Return advice on the fields that pydantic refuses."""
    model = _OF_MODEL.search(raised.message)
    if model is None:
        return ""
    advice = []
    for name, reason, kind, value in list(_FIELD.findall(raised.message))[:MOST_FIELDS]:
        if kind == "extra_forbidden":
            advice.append(f"remove {name}, which {model[1]} of this release does not have")
        elif kind == "missing":
            advice.append(f"set {name}, which {model[1]} requires")
        else:
            advice.append(f"set {name} of {model[1]} to what it accepts ({reason}), not {value}")
    return "; ".join(advice)


def apart(raised: Raised) -> str:
    """Return which two things do not go together, according to the message."""
    for sentence in _SENTENCE.findall(" ".join(raised.plain.split())[:LONGEST]):
        if found := _APART.match(sentence.strip(" .;")):
            first, second = (part.strip(" .,:") for part in found.groups())
            second = _TIME.sub("", second)
            if second and len(sentence) <= _MOST_WORDS:
                both = f"{first}, or {second}" if first.lower() not in _NAMELESS else second
                return f"change what does not go together, as the message states: {both}"
    return ""


def unsupported(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on what a package states that it does not support."""
    stated = (
        sentence.strip(" .;") for sentence in _SENTENCE.findall(" ".join(raised.plain.split())[:LONGEST])
    )
    found = next(filter(_UNSUPPORTED.search, stated), "")
    if not found or len(found) > _MOST_WORDS or raised.name in OUTSIDE:
        return ""
    which = (
        f"the documentation of {place.package} says which release supports it"
        if place.package
        else "a newer release may support it"
    )
    return (
        f"do without what is not supported, as the message states ({found}); "
        f"{which}{this_release(place.package, lines)}"
    )
