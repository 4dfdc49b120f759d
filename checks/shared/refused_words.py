"""A word that Hydra refuses as an override: what is wrong with it, and what was meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.checks.shared.configuration import place
from verl_doctor.checks.shared.corrections import Healed, healed, reworded
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.rule import Correction

SETTING = re.compile(r"(?<!\S)(?:\+{0,2}|~)[A-Za-z_]\w*(?:\.[\w@/-]+)+=")
"""A setting among the words of a text."""
_OPTION = re.compile(r"--config_(?:name|path|dir)(?==|$)")
_LAST_COMMA = re.compile(r",\s*([\]}])$")
_NO_BREAK = "\u00a0"
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_QUOTES = "\u2018\u2019\u201c\u201d"
_TYPOGRAPHIC = str.maketrans("\u2010\u2011\u2012\u2013\u2014\u2212" + _QUOTES, "------" + "''" + '""')
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")


def goes_on(before: Sequence[OverrideWord], word: OverrideWord) -> bool:
    """Return whether a space cut off the word from a list or a dictionary.

    The finding about the word before it covers that.
    """
    return any(_open(override) and word.fate == "not an override" for override in before)


def _open(word: OverrideWord) -> bool:
    value = word.text.partition("=")[2]
    return word.fate == "not an override" and any(
        value.startswith(begin) and value.count(begin) > value.count(end) for begin, end in ("[]", "{}")
    )


def explanation(
    word: OverrideWord, following: Sequence[OverrideWord], configuration: Configuration
) -> tuple[str, str] | None:
    """Return what is wrong with a word and its remedy; None for an override that Hydra accepts."""
    if following and _open(word) and goes_on((word,), following[0]):
        return (
            f"{word.text} ends at a space inside a list: the shell splits it into two words",
            f"put quotes around the whole word: '{word.text} {following[0].text}'",
        )
    if word.fate == "not an override":
        if _NO_BREAK in word.text:
            shown = word.text.replace(_NO_BREAK, " ").strip()
            where = f"in {shown}" if shown else "among the words of the command"
            return (
                f"a non-breaking space (U+00A0) stands {where}: the shell takes it for a letter",
                "write a blank in its place",
            )
        if not word.text.strip():
            return (
                "a space follows the \\ at the end of a line, so the command has a blank argument",
                "remove the space after the \\",
            )
        if word.text.startswith("-"):
            option = word.text.partition("=")[0]
            if setting := _without_dashes(word, following, configuration):
                return f"Hydra has no option {option}", f"write {setting}: settings have no dashes in front"
            return (
                f"Hydra has no option {option}",
                "its options for configuration files are --config-path, --config-name and --config-dir",
            )
        if (count := len(SETTING.findall(word.text))) > 1:
            return f"{count} settings are one word: {word.text}", "write each as a word of its own"
        return f"Hydra cannot read {word.text}: {word.why}", _quoted(word)
    if word.fate == "several values":
        values = ",".join(map(str, word.value))
        return (
            f"{word.key} has several values, which requests several runs; a list is written [{values}]",
            f"write '{word.sign}{word.key}=[{values}]'",
        )
    if word.fate == "nothing to delete":
        return f"~{word.key} deletes a key that does not exist", "remove it"
    if word.fate == "no such group":
        return f"{word.text}: verl's configuration has no group {word.key}", "remove it"
    return None


def corrected(word: OverrideWord, following: Sequence[OverrideWord], configuration: Configuration) -> Healed:
    """Return the fix of the word, if its meaning is clear."""
    if word.fate == "not an override" and _NO_BREAK in word.text:
        return {"fix": "plain-blanks"} if place(word).line is not None else {}
    if not word.text.strip() and place(word).line is not None:
        return {"fix": "joined-lines"}
    key, equals, value = word.text.partition("=")
    if word.fate == "nothing to delete":
        return healed("CFG103", reworded(word, None))
    if word.fate == "several values":
        return healed("CFG103", reworded(word, f"{key}={_one_value(word, configuration)}"))
    if word.fate == "not an override" and (option := _OPTION.match(word.text)):
        dashed = option[0].replace("_", "-")
        return healed("CFG103", reworded(word, f"{dashed}{word.text[option.end() :]}"))
    if setting := _without_dashes(word, following, configuration):
        taken = following[:1] if "=" not in word.text else ()
        corrections = [reworded(word, setting), *(reworded(other, None) for other in taken)]
        rewrites = tuple(rewrite for found in corrections if found for rewrite in found.rewrites)
        return healed("CFG103", Correction("", rewrites) if all(corrections) else None)
    if word.fate != "not an override" or word.text.startswith("-"):
        return {}
    if pieces := _cut_apart(word, following, configuration):
        return healed("CFG103", _joined((word, *pieces)))
    if equals and _open(word):
        return healed("CFG103", reworded(word, f"{word.text}{_missing_brackets(value)}"))
    if equals and (typed := _as_typed(value)):
        return healed("CFG103", reworded(word, f"{key}={typed}"))
    if equals and (last := _LAST_COMMA.search(value)):
        return healed("CFG103", reworded(word, f"{key}={value[: last.start()]}{last[1]}"))
    if len(SETTING.findall(word.text)) > 1:  # quotes for Hydra would make one value of several settings
        return {}
    if equals and value and not set(_APOSTROPHE.sub("", value)) & set("'\"\\"):
        return healed("CFG103", reworded(word, f'{key}="{value}"'))
    return {}


def _without_dashes(
    word: OverrideWord, following: Sequence[OverrideWord], configuration: Configuration
) -> str:
    """Return the setting meant by an option in the manner of argparse: `--KEY=VALUE` or `--KEY VALUE`."""
    key, equals, value = word.text.removeprefix("--").partition("=")
    if word.fate != "not an override" or not word.text.startswith("--") or not configuration.has(key):
        return ""
    if not equals and following and takes(word, following[0], configuration):
        equals, value = "=", following[0].text
    return f"{key}={value}" if equals else ""


def takes(word: OverrideWord, other: OverrideWord, configuration: Configuration) -> bool:
    """Return whether a word is the value of the option before it: `--KEY VALUE`, for a key of verl."""
    is_option = word.text.startswith("--") and configuration.has(word.text.removeprefix("--"))
    return is_option and other.fate == "not an override" and not set(other.text) & set("= \t")


def _as_typed(value: str) -> str:
    """The value with a keyboard's own dashes or quotes; "" if an editor changed none.

    An editor may have put other dashes into a number or other quotes around a text.
    """
    plain = value.translate(_TYPOGRAPHIC)
    if plain == value or not (_NUMBER.fullmatch(plain) or set(value) & set(_QUOTES)):
        return ""
    inner = plain[1:-1] if len(plain) > 2 and plain[0] == plain[-1] and plain[0] in "'\"" else plain
    return inner if re.fullmatch(r"[\w./-]+", inner) else plain


def _one_value(word: OverrideWord, configuration: Configuration) -> str:
    """The combined meaning of several values, by the value that they replace.

    It is a text, a number with a decimal comma, or a list.
    """
    values, default = ",".join(map(str, word.value)), configuration.default(word.key)
    if isinstance(default, str):
        return f'"{values}"'
    is_number = isinstance(default, float) and _DECIMAL_COMMA.fullmatch(word.text.partition("=")[2])
    return is_number[0].replace(",", ".") if is_number else f"[{values}]"


def _cut_apart(
    word: OverrideWord, following: Sequence[OverrideWord], configuration: Configuration
) -> Sequence[OverrideWord]:
    """The following words that belong to this one: a list's rest, or the value after a spaced equals sign."""
    if _open(word):
        for count in range(1, len(following) + 1):
            text = " ".join(override.text for override in (word, *following[:count]))
            if not _missing_brackets(text):
                return (
                    following[:count]
                    if all("=" not in override.text for override in following[:count])
                    else ()
                )
        return ()
    if "=" not in word.text and configuration.has(word.text.lstrip("+")) and following:
        if following[0].text == "=" and len(following) > 1 and "=" not in following[1].text:
            return following[:2]
        if following[0].text.startswith("=") and len(following[0].text) > 1:
            return following[:1]
    return ()


def _joined(words: Sequence[OverrideWord]) -> Correction | None:
    """One word joined from several that blanks separate."""
    lead = " " if _open(words[0]) else ""
    found = [
        reworded(word, None if number else lead.join(override.text for override in words))
        for number, word in enumerate(words)
    ]
    if not all(found):
        return None
    return Correction(
        "", tuple(rewrite for correction in found if correction for rewrite in correction.rewrites)
    )


def _missing_brackets(text: str) -> str:
    """The closing brackets that the text lacks."""
    closing = {"[": "]", "{": "}"}
    waiting: list[str] = []
    for sign in text:
        if sign in closing:
            waiting.append(closing[sign])
        elif waiting and sign == waiting[-1]:
            waiting.pop()
    return "".join(reversed(waiting))


def _quoted(word: OverrideWord) -> str:
    key, equals, value = word.text.partition("=")
    if equals and (typed := _as_typed(value)):
        return f"write {key}={typed}"
    if not equals or "'" in _APOSTROPHE.sub("", value):
        return "quote it, or remove it"
    return f"""write '{key}="{value}"', with both kinds of quotes"""
