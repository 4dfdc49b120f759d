"""What may be a secret, told from a name or from the look of a text. When in doubt it is one: rules do without the value."""

from __future__ import annotations

import re
from functools import lru_cache

# Words that smell wherever they stand in a name, alone or glued to others: HF_TOKEN, hfToken, SLURMJWT, OAUTH2.
_SECRET_WORD = re.compile(
    r"SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|BEARER|JWT|COOKIE|TOKEN(?!I[SZ]|S$)|AUTH(?!OR(S|ITY|ED)?$)"
    r"|(?<!MON)KEYS?$|(?<!COM)PATS?$|SAS$|^(CREDS?|PWD|PSK|SIG|SIGNATURE)$"
)
# HF_API is a key, VLLM_ENABLE_RESPONSES_API_STORE is none.
_LAST_WORD = re.compile(r"^API$|(?<!BY)(?<!COM)PASS$")
_PLURAL_TOKENS = re.compile(r"(API|ACCESS|REFRESH|USER|HF)_?TOKENS(_|$)|^TOKENS$")  # others are counted
# What looks like a secret's name and is none: a partition of the fabric, the keys and tokens of attention, columns of the data.
_HARMLESS_NAME = re.compile(
    r"IB_PKEY|SIG_(Q|PND|BLK|IGN|CGT)$|KEY_(CACHE|STATES?|PADDING)|TOKEN_(LEVEL|LEN|LENGTH|COUNT|BUDGET|LIMIT|IDS?)"
    r"|(BOS|EOS|PAD|UNK|MASK|STOP|IMAGE|VIDEO|AUDIO|SPECIAL|CONTINUOUS)_TOKEN"
    r"|(PROMPT|QUESTION|RESPONSE|ANSWER|LABEL|IMAGE|VIDEO|AUDIO|MESSAGES?|TOOLS?|THINKING|REWARD_(FN|MODEL)|DATA_SOURCE"
    r"|TEACHER|DICT|FULL)_KEYS?(?=_|$)"
)
# Columns of the user's own data, whatever they are called: data.question_key=question.
_COLUMN = re.compile(
    r"data\.(?:\w+\.)*(?!(?:\w*_)?(?:api|access|secret|private|signing|encryption)_)\w+_keys?=[a-z_]+"
)
_WORD_OF_KEY = re.compile(r"[\w-]+")
# What is no secret under any name, and what is none under the name of a token: a number of tokens.
_NOTHING = re.compile(
    r"none|null|true|false|yes|no|on|off|ok|(un)?set|not|missing|invalid|required|failed|expired|disabled|enabled"
    r"|SIG[A-Z]+|\d{1,2}|[\[({][\])}]|~?",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"[\s\d.,e+()\[\]-]*")
# A name that ends so says where a secret lies, or how it is used.
_BESIDE_THE_SECRET = frozenset({"PATH", "FILE", "DIR", "MODE", "TIMEOUT"})
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LETTERS = re.compile(r"[A-Z]+")

# What the issuers promise about the form of their tokens, and what stands before others.
_TOKEN = re.compile(
    r"PRIVATE KEY-----|\b(?:bearer|basic)\s+[\w+/=.~-]{6,}"
    r"|(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{30,}|(?<![/.-])sk-[\w-]{12,}|gh[a-z]_[A-Za-z0-9]{12,}|github_pat_\w{12,}"
    r"|glpat-[\w-]{12,}|xox[a-z]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w-]{30,}"
    r"|nvapi-[\w-]{12,}|eyJ[\w-]{8,}(?:\.[\w-]{4,})+)",
    re.IGNORECASE,
)
# Addresses that anybody may post to who knows them.
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|/open-apis/bot/v2/hook/"
    r"|webhook\.office\.com/|api\.telegram\.org/bot)[^\s\"'<>]+"
)
# Names that are given a value, or quoted beside one: --name, "name", name=, name:, {name: and -Dname.
_NAMED = re.compile(
    r"(?<![\w.-])(?:--?D?([\w.-]+)|([\w.-]+)(?=\s*=|:\s|\\*[\"'])|(?<=[{,])([\w.-]+)(?=\s*:))"
)
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]+)=")

# What names a value that stands behind it, as logs and configurations write it: name=, "name": , --name , -e NAME ,
# "name": "NAME", "value": . Behind a name without quotes and signs prose may follow: HF_TOKEN is not set.
_BEFORE_A_VALUE = re.compile(
    r"""(?<![\w.-])(?:
    name\\*["']?\s*[:=]\s*\\*["']?(?P<entry>[\w.-]+)\\*["']?,?\s*\\*["']?value\\*["']?\s*[:=]\s*
    |(?:-e|--env)\s+(?P<variable>\w+)\s+(?!-)
    |--?(?P<option>[A-Za-z][\w-]*)\s+(?!-|(?:to|or|and|is|if|in|as|for|with|when|was|must|option|argument)\b)
    |(?P<name>(?:(?:api|access|secret|private)[ ])?(?!\d)[\w.-]+)\\*["']?(?:\s*(?:=(?!=)|:)\s*|[ ]is[ ]+(?=\S*\d)(?=\S{16}))
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_LOGIN = re.compile(
    r"(\b(?:wandb|swanlab)\s+login(?:\s+--[\w-]+(?:=\S+)?)*\s+(?:-k\s+)?)(?=\S*\d|\S{20})(?!-)[^\s\"'`]+"
)
_USER_OPTION = re.compile(
    r"((?<![\w-])(?:-u|--user)\s+[A-Za-z][\w.+@-]*:|\bsshpass\s+-p\s*|\blogin\b[^\n]{0,200}?\s-p\s+"
    r"|\b(?:mysql|mariadb)\b[^\n]{0,200}?\s-p(?=\S)|\bPassword for '[^'\n]{1,200}':\s*)[^\s\"']+"
)
_USER_AT_HOST = re.compile(r"(?<![\w./:@+-])([\w.+-]+:)[^\s@/:\"'=,]+@(?!sha\d+:)(?=[\w-])")
# A header's value has blanks in it: Authorization: Token abc. Others end at a blank, or where their quote does.
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie", re.IGNORECASE)
_OF_HEADER = re.compile(r"[^\"'\n]+")
_QUOTED = re.compile(r"b?(?P<quote>\\*[\"'])(?P<value>.*?)(?:(?P=quote)|$)", re.MULTILINE)
_IN_A_CALL = re.compile(r"[\w.]+\(b?(?P<quote>\\*[\"'])(?P<value>.*?)(?P=quote)")  # SecretStr("...")
_IN_BRACKETS = re.compile(r"[\[({][^\])}\n]*[\])}]?")
_BARE = re.compile(r"[^\s\"'&]*?(?=[,;:)}\]>\\`]{0,8}(?:[\s\"'&]|$))")
# Messages on what is missing, and results: KeyError: 'limit_images', unexpected key: model.norm, PASS: all of them.
_NO_VALUE = re.compile(r"[\w.]*(?:Error|Exception)\s*:|(?i:keys?)\s*:|PASS:|(?:OLD)?PWD=(?=[/~])")
# The key of anything, and not of an address (?key=abc): sorted(names, key=lambda...). What has digits may be a secret.
_KEY_OF_ANYTHING = re.compile(r"(?<![?&])keys?\\*[\"']?\s*[=:](?!\s*b?\\*[\"']?[^\s\"',]*\d)", re.IGNORECASE)
# A line of a file, or a port: cookies.py:33, auth:80.
_NUMBERED = re.compile(r"(?!\S*(?:pass|pwd))\S+:\d{1,5}(?!\w)", re.IGNORECASE)
BLANKED = "://***@"
"""What stands in a URL whose user and password were taken out."""

_USER_IN_URL = re.compile(r"(:[/\\]{2,})[^\s/\\?#\"'<>@]*@")


@lru_cache(maxsize=4096)
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


def is_secret(name: str, value: str) -> bool:
    """Whether this value of what has this name may be a secret: nothing is none, nor is a number of tokens."""
    if not smells_of_secret(name) or _NOTHING.fullmatch(value):
        return False
    return "token" not in name.lower() or _NUMBERS.fullmatch(value) is None


def setting_is_secret(key: str, value: str) -> bool:
    """Whether the value of a setting may be a secret: its dotted key says so in any of its parts, or the value does."""
    if may_hold_secret(value):
        return True
    return not _COLUMN.fullmatch(f"{key}={value}") and any(
        is_secret(part, value) for part in _WORD_OF_KEY.findall(key)
    )


def may_hold_secret(text: str) -> bool:
    """Whether a value or a line of text looks as if a secret were in it: a token, a user with a password, a name for one."""
    return (
        _TOKEN.search(text) is not None
        or _WEBHOOK.search(text) is not None
        or "%40" in text
        or any(":" in word.rpartition("@")[0] for word in text.split())
        or any(smells_of_secret("".join(names)) for names in _NAMED.findall(text))
    )


def list_may_hold_secret(text: str) -> bool:
    """As `may_hold_secret` for a list of paths or of hosts, in which `@`, `token:` and the like are parts of names."""
    return _TOKEN.search(text) is not None or any(map(smells_of_secret, _ASSIGNED.findall(text)))


def without_user(url: str) -> str:
    """URLs with `***` in place of the user and the password."""
    return _USER_IN_URL.sub(r"\1***@", url)


def without_secrets(text: str) -> str:
    """A line of a log with `***` in place of tokens, of users in URLs, and of the values of what smells of a secret."""
    text = _WEBHOOK.sub(r"\1***", _TOKEN.sub("***", without_user(text)))
    return _values_blanked(
        _USER_AT_HOST.sub(r"\1***@", _USER_OPTION.sub(r"\1***", _LOGIN.sub(r"\1***", text)))
    )


def _values_blanked(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for before in _BEFORE_A_VALUE.finditer(text):
        name = before[before.lastgroup or 0]
        names = {name, name.rpartition(".")[2]}
        if before.start() < done or not any(map(smells_of_secret, names)) or _is_prose(before):
            continue
        start, end = _value_at(text, before.end(), name)
        if any(is_secret(one, text[start:end]) for one in names):
            pieces += [text[done:start], "***"]
            done = end
    return "".join((*pieces, text[done:]))


def _is_prose(before: re.Match[str]) -> bool:
    """Whether what stands behind the name is no value: the line of a file, or what a message is about."""
    return before.lastgroup == "name" and any(
        one.match(before.string, before.start()) for one in (_NO_VALUE, _NUMBERED, _KEY_OF_ANYTHING)
    )


def _value_at(text: str, place: int, name: str) -> tuple[int, int]:
    """Where the value that begins there stands, without its quotes."""
    if quoted := _QUOTED.match(text, place) or _IN_A_CALL.match(text, place):
        return quoted.span("value")
    form = (
        _OF_HEADER if _HEADER.fullmatch(name) else _IN_BRACKETS if text[place : place + 1] in "[({" else _BARE
    )
    found = form.match(text, place)
    return found.span() if found else (place, place)
