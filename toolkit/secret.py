"""What may be a secret, told from a name or from the look of a text. When in doubt it is one: rules do without the value."""

from __future__ import annotations

import re

# Words that smell wherever they stand in a name, alone or glued to others: HF_TOKEN, hfToken, SLURMJWT, OAUTH2.
_SECRET_WORD = re.compile(
    r"SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|BEARER|JWT|COOKIE|TOKEN(?!I[SZ]|S$)|AUTH(?!OR(S|ITY|ED)?$)"
    r"|(?<!MON)KEYS?$|(?<!COM)PATS?$|SAS$|^(CREDS?|PWD|PSK|SIG|SIGNATURE)$"
)
# HF_API is a key, VLLM_ENABLE_RESPONSES_API_STORE is none.
_LAST_WORD = re.compile(r"^API$|(?<!BY)(?<!COM)PASS$")
_PLURAL_TOKENS = re.compile(r"(API|ACCESS|REFRESH|USER|HF)_?TOKENS(_|$)|^TOKENS$")  # others are counted
# What looks like a secret's name and is none: a partition of the fabric, the keys and tokens of attention.
_HARMLESS_NAME = re.compile(
    r"IB_PKEY|KEY_(CACHE|STATES?|PADDING)|TOKEN_(LEVEL|LEN|LENGTH|COUNT|BUDGET|LIMIT)"
)
# A name that ends so says where a secret lies, or how it is used.
_BESIDE_THE_SECRET = frozenset({"PATH", "FILE", "DIR", "MODE", "TIMEOUT"})
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LETTERS = re.compile(r"[A-Z]+")

# What the issuers promise about the form of their tokens, and what stands before others.
_TOKEN = re.compile(
    r"PRIVATE KEY-----|\b(?:bearer|basic)\s+[\w+/=.~-]{6,}"
    r"|(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{30,}|(?<![/.-])sk-[\w-]{12,}|gh[a-z]_[A-Za-z0-9]{12,}|github_pat_\w{12,}"
    r"|glpat-[\w-]{12,}|xox[a-z]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w-]{30,}"
    r"|nvapi-[\w-]{12,}|eyJ[\w-]{8,}\.[\w-]{4,})",
    re.IGNORECASE,
)
# Names that are given a value, or quoted beside one: --name, "name", name=, name: and -Dname.
_NAMED = re.compile(r"(?<![\w.-])(?:--?D?([\w.-]+)|([\w.-]+)(?=\s*=|:\s|\\*[\"']))")
# A name with its value, as logs and configurations write them. KeyError and full_key name none.
_VALUE = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]+)(?P<between>[\"']?\s?[=:]\s?[\"']?)(?P<value>[^\s\"',;)}\]]{6,})"
)
_NO_VALUE = re.compile(r"\w*(?:Error|Exception)|full_key")
BLANKED = "://***@"
"""What stands in a URL whose user and password were taken out."""

_USER_IN_URL = re.compile(r"(:[/\\]{2,})[^\s/\\?#\"'<>@]*@")


def smells_of_secret(name: str) -> bool:
    """Whether what has this name (a variable, an option, a key, an identifier) may be a secret: a word of it says so."""
    spelt = _HARMLESS_NAME.sub("", "_".join(_HUMP.findall(name)).upper())
    words = [word for word in spelt.split("_") if word]
    if not words or words[-1] in _BESIDE_THE_SECRET:
        return False
    glued = _LETTERS.findall(_HARMLESS_NAME.sub("", name.upper()))
    return (
        any(_SECRET_WORD.search(word) for word in (*words, *glued))
        or _LAST_WORD.search(words[-1]) is not None
        or _PLURAL_TOKENS.search(spelt) is not None
    )


def may_hold_secret(text: str) -> bool:
    """Whether a value or a line of text looks as if a secret were in it: a token, a user with a password, a name for one."""
    return (
        _TOKEN.search(text) is not None
        or "%40" in text
        or any(":" in word.rpartition("@")[0] for word in text.split())
        or any(smells_of_secret(option or name) for option, name in _NAMED.findall(text))
    )


def without_user(url: str) -> str:
    """URLs with `***` in place of the user and the password."""
    return _USER_IN_URL.sub(r"\1***@", url)


def without_secrets(text: str) -> str:
    """A line of a log with `***` in place of tokens, of users in URLs, and of the values of what smells of a secret."""
    return _VALUE.sub(_blanked, _TOKEN.sub("***", without_user(text)))


def _blanked(match: re.Match[str]) -> str:
    if _NO_VALUE.fullmatch(match["name"]) or not smells_of_secret(match["name"]):
        return match[0]
    return f"{match['name']}{match['between']}***"
