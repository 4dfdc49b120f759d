"""Detects possible secrets, by name or by the form of a text.

When in doubt, it is a secret, and rules do without the value.

All other modules rely on this one. `console.masked` applies it to everything that leaves the doctor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from verl_doctor.toolkit.system.token_shapes import without_tokens

MASK = "***"
"""The replacement for a secret."""

# Words that suggest a secret anywhere in a name, alone or joined to others: HF_TOKEN, hfToken, SLURMJWT,
# OAUTH2, DBPW.
_SECRET_WORD = re.compile(
    r"SECRET|PASSW|PASWD|PSWD|PASSPHRASE|PASSCODE|CREDENTIAL|BEARER|JWT|COOKIE|TOKEN(?!I[SZ]|S$)|AUTH"
    r"(?!OR(S|ITY|ED)?$|ORING)|(?<!MON)(?<!TUR)(?<!DON)(?<!HOC)(?<!WHIS)(?<!JOC)KEYS?$|(?<!COM)PATS?$"
    r"|SAS$|PWD?$|^(CREDS?|PINS?|PINCODE|PSK|SIG|SIGNATURE|OTP|TOTP|MFA)$|^(?!BY|COM|TRES|SUR|OVER|UNDER"
    r"|ENCOM)[A-Z]*PASS$|^(SENHA|KENNWORT|CONTRASENA|PASSE)$"
)
# password, passphrase, key and token in Chinese; password in Japanese, Korean, Spanish and Russian.
_ELSEWHERE = re.compile(
    "\u5bc6\u7801|\u53e3\u4ee4|[\u5bc6\u79d8]\u94a5|\u4ee4\u724c|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638"
    "|contrase\u00f1a|\u043f\u0430\u0440\u043e\u043b\u044c",
    re.IGNORECASE,
)
_PLURAL_TOKENS = re.compile(r"(API|ACCESS|REFRESH|USER|HF)_?TOKENS(_|$)|^TOKENS$")  # numbers of tokens
# Names that resemble a secret's but are none: a partition of the fabric, the keys and tokens of attention,
# columns of the data, threads pinned to cores, passes over a graph or over the data.
_HARMLESS_NAME = re.compile(
    r"IB_PKEY|SIG_(Q|PND|BLK|IGN|CGT)$|KEY_(CACHE|STATES?|PADDING|VALUE|NAMES?|LEN|LENGTH|HEADS?|DIM"
    r"|LAYER|FN|FUNC|PROJ)|TOKEN_(LEVEL|LEN|LENGTH|COUNT|BUDGET|LIMIT|IDS?|LOSS|MEAN|SUM|LOGPROBS?"
    r"|REWARDS?|SCORES?|USAGE|THROUGHPUT|MASK|TYPE)|(BOS|EOS|PAD|UNK|CLS|SEP|MASK|STOP|IMAGE|VIDEO|AUDIO"
    r"|SPECIAL|CONTINUOUS|NUM|MAX|MIN|PER|NEW|CACHED|TOTAL|BOUNDARY|FIRST|NEXT|LAST|OUTPUT|INPUT"
    r"|DRAFT)_TOKEN|(PROMPT|QUESTION|RESPONSE|ANSWER|LABEL|IMAGE|VIDEO|AUDIO|MESSAGES?|TOOLS?|THINKING"
    r"|REWARD_(FN|MODEL)|DATA_SOURCE|TEACHER|DICT|FULL|MISSING|UNEXPECTED|SORT|GROUP|CACHE|STATE_DICT"
    r"|UID|MATCH|PRIMARY|FOREIGN|PARTITION|METRICS?)_KEYS?(?=_|$)|^KEYS$|PIN_(MEMORY|MEM|CPUS?|CORES?"
    r"|THREADS?|NUMA|GPUS?|PROCESS|BUFFERS?|HOST)|(CPU|CORE|THREAD|NUMA|GPU)_PINS?(?=_|$)|PASS_(AT|RATE"
    r"|CONFIG|K|THROUGH|MANAGER|COUNT|NUM|PERCENT|RATIO|THRESHOLD|FAIL|ARGS|KWARGS|\d)|(FORWARD|BACKWARD"
    r"|SINGLE|TWO|ONE|MULTI|FIRST|SECOND|LAST|NUM|PER|GRAPH|FUSION|INDUCTOR|CUSTOM|GRAD|AT|ALL|TEST"
    r"|TESTS|DID|MUST)_PASS(ES)?(?=_|$)"
)
# Columns of the user's own data, whatever their names: data.question_key=question.
_COLUMN = re.compile(
    r"data\.(?:\w+\.)*(?!(?:\w*_)?(?:api|access|secret|private|signing|encryption)_)\w+_keys?=[a-z_]+"
)
_WORD_OF_KEY = re.compile(r"[\w-]+")
# Values that are never a secret (one is code, one stands in a message of Hydra's), and those that are none
# under a name with "token": a number of tokens.
_NOTHING = re.compile(
    (
        r"none|null|true|false|yes|no|on|off|ok|(un)?set|not|missing|invalid|required|failed|expired"
        r"|disabled|enabled|await|\[?value1,value2\]?|SIG[A-Z]+|\d{1,2}|[\[({][\])}]?|[-|>][-+]?|~?"
    ),
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"[\s\d.,e+()\[\]-]*")
# Endings of names for a secret's location or use.
_BESIDE_THE_SECRET = frozenset({"PATH", "FILE", "DIR", "MODE", "TIMEOUT"})
_WHERE = frozenset({"PATH", "FILE", "DIR"})
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LETTERS = re.compile(r"[A-Z]+")

# Names followed by a value, or quoted next to one: --name, "name", name=, name:, {name: and -Dname.
# "$PWD" is the shell's folder, PWD= may be a password.
_NAMED = re.compile(
    r"(?<![\w.-])(?:--?D?([\w.-]+)|(?!(?<=\$)(?:OLD)?PWD[\"'])([\w.-]+)(?=\s*=|:\s|\\*[\"'])|(?<=[{,])("
    r"[\w.-]+)(?=\s*:))"
)
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]+)=")

# Names followed by their value, as logs and configurations write them: name=, "name": , --name , -e NAME ,
# "name": "NAME", "value": . A name without quotes and signs may be followed by prose: HF_TOKEN is not set.
_COLOUR = r"(?:\x1b\[[\d;]*m)*"
_BEFORE_A_VALUE = re.compile(
    rf"""(?:(?<![\w.-])|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm)|(?<=;\dm)|(?<=;\d\dm))(?:
    name\\*["']?\s*[:=]\s*\\*["']?(?P<entry>[\w.-]+)\\*["']?,?\s*\\*["']?value\\*["']?\s*[:=]\s*
    |(?:-e|--env|setenv|configure\s+set)\s+(?P<variable>\w+)\s+(?!-)
    |(?:env|export)\s+(?P<exported>\w+)\s+(?=\S*\d)(?=\S{{8}})
    |<(?P<element>[\w.:-]+)(?:\s[^<>\n]*)?>(?=[^<\s])
    |--?(?P<option>[A-Za-z][\w-]*)(?:\s*\\\n)?\s+(?!-|(?:to|or|and|is|if|in|as|for|with|when|was|must|option|argument)(?![\w-]))
    |(?P<name>(?:(?:api|access|secret|private)[ ])?(?!\d)[\w.-]+)\\*["']?\]?{_COLOUR}
        (?:\s*(?:=(?!=)|[:\uff1d\uff1a])\s*|[ ]is:?[ ]+(?=\S*\d)(?=\S{{16}})){_COLOUR}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# Programs that take a secret as a short option or a word, and what precedes it.
_LOGIN = re.compile(
    r"(\b(?:wandb|swanlab|comet|vault|heroku|modelscope|huggingface-cli)\s+login(?:\s+--?[\w-]+=\S+"
    r"|\s+--[\w-]+)*\s+(?:-k\s+)?)(?=\S*\d|\S{20})(?!-)[^\s\"'`]+"
)
_USER_OPTION = re.compile(
    r"""(?<!\w)(?=[\w.-])(?:
    (?<![\w-])(?:-[uU]|--(?:proxy-)?user)[\s=]*["']?[A-Za-z_][\w.+@\\-]*[:%]
    |\bsshpass\b[^\n]{0,50}?\s-p\s*
    |\blogin\b[^\n]{0,200}?\s(?:-p[\s=]*(?=\S)|--password[\s=]+)
    |\b(?:mysql|mariadb|mysqldump|mysqladmin|mongo|mongosh|mongodump|rsync|smbclient|beeline)\b[^\n]{0,200}?\s-p[\s=]*(?=[^\s-])
    |\b(?:zip|unzip|7za?|rar|unrar)\b[^\n]{0,200}?\s-(?:[pP]|hp)\s?(?=[^\s-])
    |\b(?:twine|huggingface-cli|hf|az|oc|helm|podman|docker|skopeo|ngc)\b[^\n]{0,200}?\s-p\s+(?=[^\s-])(?![\d.]+:\d)
    |\bredis-cli\b[^\n]{0,200}?\s-a\s*
    |\bipmi\w*\b[^\n]{0,200}?\s-P\s+
    |\b(?i:identified)\s+(?:(?i:with)\s+\S+\s+)?(?i:by)\s+
    |\bldap\w+\b[^\n]{0,200}?\s-w\s*(?=[^\s-])
    |\b(?:mosquitto_\w+|sqlcmd|bcp)\b[^\n]{0,200}?\s-P\s*(?=[^\s-])
    |\blftp\b[^\n]{0,200}?\s-u\s+[^\s,]{1,200},
    |\bsnmp\w+\b[^\n]{0,200}?\s-c\s+(?=[^\s-])
    |\b(?:ngrok\s+authtoken|rclone\s+obscure|cargo\s+login)\s+(?=[^\s-])
    |(?<![\w.])[\w.]{0,100}Auth\(\s*[^,()\n]{1,100},\s*(?=["'])
    |(?<![\w.])[\w.]{0,100}(?:(?:Key|Token)Credential|SecretStr|SecretBytes)\(\s*(?=["'])
    |\bssh-keygen\b[^\n]{0,200}?\s-[NP]\s+
    |\bhtpasswd\s+-\w*b\w*\s+\S+\s+\S+\s+
    |\bmc\s+(?:alias\s+set|config\s+host\s+add)\s+\S+\s+\S+\s+\S+\s+
    |\banaconda\s+(?:-t|--token)\s+
    |\bpass(?:in|out)?\s+pass:
    |\bPassword\ for\ '[^'\n]{1,200}':\s*
    |\b[Pp]assword\ for\ [\w.@-]{1,100}:[ ]+(?=\S{0,200}\d)
    |\b(?:machine\s+\S{1,253}|default)\s+(?:(?:login|account)\s+\S{1,253}\s+){1,4}password\s+
    |\bmachine\s+(?=\S{0,253}\.)\S{1,253}\s+password\s+(?=\S{0,400}[\d!#-&*+=?@^~])
        (?=\S{6,400}(?:[ \t]*(?:$|\n)|\s+(?:machine|default|macdef|login|account)\b))
    )(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"']+)""",
    re.VERBOSE,
)
# A password piped into the program that prompts for it.
_PIPED = re.compile(
    r"(\b(?:echo|printf)\s+(?:-n\s+)?(?:[\"']%s(?:\\n)?[\"']\s+)?)(?!-)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s|]+)"
    r"(?=\s*\|\s*[^\n|]*(?:--password-stdin|--with-token|\bsudo\s+-\w*S|--stdin\b|-stdin\b))"
)
_HERE_STRING = re.compile(
    r"((?:--password-stdin|--with-token|\bsudo\s+-\w{0,20}S)[^\n|<]{0,200}<<<\s*)(?:\"[^\"\n]*\"|'"
    r"[^'\n]*'|\S+)"
)
# Prose: bad password 'hunter2'.
_QUOTED_IN_PROSE = re.compile(
    (
        r"(\b(?:password|passwd|passphrase|passcode|pwd|pw|secret|token|credentials?|(?:api|access|secret"
        r"|private)[ _-]?key)\s+)([\"'`])(?=[^\"'`\s]*\d)[^\"'`\s]{6,}\2"
    ),
    re.IGNORECASE,
)
_USER_AT_HOST = re.compile(
    r"(?<![\w./:@+-])([\w.+-]+:)[^\s@/:\"'=,]+@(?!sha\d+:)(?!\d{1,5}(?![\w.-]))(?=[\w-])"
)
# The value of a header contains blanks: Authorization: Token abc. Others end at a blank or at the closing
# quote.
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie", re.IGNORECASE)
_OF_HEADER = re.compile(r"[^\"'\n]+")
_STRING = r"(?:\$(?=[\"'])|[bBfFrRuU]{0,2})(?P<quote>\"{3}|'{3}|\\*[\"'])(?P<value>.*?)"
_QUOTED = re.compile(rf"{_STRING}(?:(?P=quote)|$)", re.MULTILINE)
_IN_A_CALL = re.compile(rf"[\w.]+\(\s*{_STRING}(?P=quote)")  # SecretStr("...")
_CONTENT = re.compile(r"[^<\n]+")  # of an XML element
_IN_BRACKETS = re.compile(r"[\[({][^\])}\n]*[\])}]?")
_BARE = re.compile(r"[^\s\"'&]*?(?=[,;:)}\]>\\`]{0,8}(?:[\s\"'&]|$))")
# Messages about missing items and packages, and results: KeyError: 'limit_images', unexpected key:
# model.norm, opentelemetry-api: only read when tracing is on, PASS: all of them.
_NO_VALUE = re.compile(
    r"[\w.]*(?:Error|Exception)\s*:|(?i:keys?)\s*:|[a-z-]+-api:\s(?!\s*\S*\d)|PASS:|(?:OLD)?PWD=(?=[/~])"
)
# The key of anything except an address (?key=abc): sorted(names, key=lambda...). With digits it may be a
# secret.
_KEY_OF_ANYTHING = re.compile(
    r"(?<![?&])keys?\\*[\"']?\s*[=:](?!\s*b?\\*[\"']?[^\s\"',]{0,200}\d)", re.IGNORECASE
)
# Words of prose: in one pass: a gigabyte; may hold a secret: HF_ENDPOINT.
_PROSE = re.compile(
    r"(?<=\w )(?:(?i:pass|pin|auth):\s+(?![^\s]*\d)|secrets?:\s+[A-Z]+(?:_[A-Z0-9]+)+(?=,|;|\s|$))"
)
# A line of a file, or a port: cookies.py:33, auth:80.
_NUMBERED = re.compile(
    r"(?=[^\s:]{1,200}:\d{1,5}(?!\w))(?!\S{0,200}(?:pass|pwd))[^\s:]{1,200}:\d{1,5}", re.IGNORECASE
)
# A reference to a variable is not a secret: HF_TOKEN=$HF_TOKEN.
_VARIABLE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*(?::?[-=?+])?\}?)")
_LOOKS_LIKE_A_PATH = re.compile(r"[/\\~]|^\.|\.\w{1,6}$|^\$")
# What nobody sees in a token or its name: soft hyphens, joiners, marks of direction and order, what a
# backspace removes.
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]|[^\n\b]\b")
_SHORTEST = 8  # characters of a secret that is searched for as a word
_ORDINARY = re.compile(r"[A-Za-z]+|[a-z]+(?:[_-][a-z]+)*|[\d.:,]+|[~/.].*|\$.*|[A-Z_]+")
BLANKED = "://***@"
"""The replacement in a URL for user and password."""

# The first form matches a valid URL, the second a password with characters that should have been escaped.
# A URL that was normalised as a path has lost a slash.
_SCHEME = r"\b(?:https?|s?ftps?|ssh|git|rediss?|postgres(?:ql)?|mysql|mongodb|amqps?|s3|gs|wss?)(?:\+\w+)?"
_USER_IN_URL = re.compile(
    rf"(:[/\\]{{2,}}|{_SCHEME}:[/\\])"
    r"(?:[^\s/\\?#\"'<>]*@|[^\s/\\?#\"'<>@:]*:(?!\d{1,5}[/?#])[^\s\"'<>@,]{0,400}@(?=[\w\[]))"
)


@lru_cache(maxsize=4096)
def suggests_secret(name: str) -> bool:
    """Return whether a name (of a variable, an option, a key, an identifier) suggests a secret."""
    if not name.isascii() and _ELSEWHERE.search(name):
        return True
    words = _words(name)
    return bool(words) and words[-1] not in _BESIDE_THE_SECRET and _has_secret_word(name, words)


def _words(name: str) -> list[str]:
    spelled = _HARMLESS_NAME.sub("", "_".join(_NAME_PART.findall(name)).upper())
    return [word for word in spelled.split("_") if word]


def _has_secret_word(name: str, words: list[str]) -> bool:
    glued = _LETTERS.findall(_HARMLESS_NAME.sub("", name.upper()))
    return (
        any(_SECRET_WORD.search(word) for word in (*words, *glued))
        or _is_api_key(name, words)
        or _PLURAL_TOKENS.search("_".join(words)) is not None
    )


def _is_api_key(name: str, words: list[str]) -> bool:
    """Return whether a name ends in API.

    HF_API is a key; the rule API101 and the module torch.distributed.elastic.api are not.
    """
    return len(words) > 1 and words[-1] == "API" and not name.lower().endswith(".api")


@lru_cache(maxsize=4096)
def _is_location_of_secret(name: str) -> bool:
    """Return whether a name that suggests a secret ends in a word for its location.

    Then a path is harmless, and any other value is not.
    """
    words = _words(name)
    return bool(words) and words[-1] in _WHERE and _has_secret_word(name, words)


def is_secret(name: str, value: str) -> bool:
    """Return whether this value under this name may be a secret.

    An empty value is none, nor is a number of tokens.
    """
    if _NOTHING.fullmatch(value):
        return False
    if not suggests_secret(name):
        return _is_location_of_secret(name) and not _LOOKS_LIKE_A_PATH.search(value)
    return "token" not in name.lower() or _NUMBERS.fullmatch(value) is None


@lru_cache(maxsize=4096)  # a configuration is read without overrides and with them
def setting_is_secret(key: str, value: str) -> bool:
    """Return whether a setting's value may be a secret, by any part of its dotted key or by the value."""
    if may_hold_secret(value):
        return True
    return not _COLUMN.fullmatch(f"{key}={value}") and any(
        is_secret(part, value) for part in _WORD_OF_KEY.findall(key)
    )


def may_hold_secret(text: str) -> bool:
    """Return whether a value or line may contain a secret: a token, a user's password, a secret's name.

    The password is that of a user.
    """
    return (
        "%40" in text
        or any(":" in word.rpartition("@")[0] for word in text.split())
        or any(suggests_secret("".join(names)) for names in _NAMED.findall(text))
        or without_secrets(text) != text
    )


def list_may_hold_secret(text: str) -> bool:
    """Check like `may_hold_secret` lists of paths or hosts, where `@`, `token:` etc. are parts of names."""
    return without_tokens(text, MASK) != text or any(map(suggests_secret, _ASSIGNED.findall(text)))


def without_user(url: str) -> str:
    """Return URLs with `***` in place of the user and the password."""
    return _USER_IN_URL.sub(rf"\1{MASK}@", url) if "@" in url else url


def without_secrets(text: str) -> str:
    """Return a text with `***` for tokens, users in URLs, and values whose names suggest a secret.

    The number of lines stays the same.
    """
    if not text or text.isspace():
        return text
    if not text.isascii() or "\b" in text:
        seen = _UNSEEN.sub("", text)
        if seen != text and (hidden := _hidden_in(seen)) != seen:
            return hidden
    return _hidden_in(text)


def _hidden_in(text: str) -> str:
    text = without_tokens(without_user(text), MASK)
    if "@" in text:
        text = _USER_AT_HOST.sub(rf"\1{MASK}@", text)
    for pattern in (_LOGIN, _PIPED, _HERE_STRING):
        text = pattern.sub(rf"\1{MASK}", text)
    text = _QUOTED_IN_PROSE.sub(rf"\1\2{MASK}\2", text)
    if (named := _named_values()) is not None:
        text = named(text, MASK, suggests_secret)
    return _values_blanked(_USER_OPTION.sub(_option_blanked, text))


@cache
def _named_values() -> Callable[[str, str, Callable[[str], bool]], str] | None:
    """Return what masks the rarer forms, None on a node.

    A node does not get it. What the node sends is masked where it arrives.
    """
    try:
        from verl_doctor.toolkit.system.secret_forms import named_values_masked  # noqa: PLC0415 - see above
    except ImportError:
        return None
    return named_values_masked


def secrets_in(text: str) -> Iterator[str]:
    """Yield the parts of a text that `without_secrets` would mask, where they are separate words."""
    left, masked = text.split(), without_secrets(text).split()
    if len(left) == len(masked):
        for word, shown in zip(left, masked, strict=True):
            yield from _hidden(word, shown)
        return
    # A mask covers several words, such as `Bearer TOKEN`.
    kept, masks = set(masked), [word for word in masked if MASK in word]
    for word in dict.fromkeys(left):
        if word not in kept:
            parts = [part for shown in masks for part in _hidden(word, shown)]
            yield min(parts, key=len, default=word).strip("\"'")


def _hidden(word: str, shown: str) -> Iterator[str]:
    """Yield the part of a word that is masked where it is shown like this."""
    before, found, behind = shown.partition(MASK)
    if found and word.startswith(before) and word.endswith(behind):
        yield word[len(before) : len(word) - len(behind)]


def is_recognisable(value: str) -> bool:
    """Return whether a secret can be searched as plain text: it is long, and neither a word nor a path.

    A word here is a plain word.
    """
    return len(value) >= _SHORTEST and value != MASK and not _ORDINARY.fullmatch(value)


def _option_blanked(found: re.Match[str]) -> str:
    value = found["value"]
    before = found[0][: len(found[0]) - len(value)]
    quote = value[0] if value[0] in "\"'" else ""
    if _NOTHING.fullmatch(value) or _VARIABLE.fullmatch(value.strip("\"'")):
        return found[0]
    return f"{before}{quote}{MASK}{quote}"


def _values_blanked(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for before in _BEFORE_A_VALUE.finditer(text):
        name = before[before.lastgroup or 0]
        names = {name, name.rpartition(".")[2]}
        if before.start() < done or not any(
            suggests_secret(name) or _is_location_of_secret(name) for name in names
        ):
            continue
        if _is_prose(before):
            continue
        # A path is recognised by its beginning; a word full of such names would be read to its end for each.
        stop = len(text) if any(map(suggests_secret, names)) else before.end() + 1000
        start, end = _value_at(text, before.end(), stop, name, in_element=before.lastgroup == "element")
        value = text[start:end]
        if _VARIABLE.fullmatch(value) or _COLUMN.fullmatch(f"{name}={value}"):
            continue
        if any(is_secret(name, value) for name in names):
            pieces += [text[done:start], MASK]
            done = end
    return "".join((*pieces, text[done:]))


def _is_prose(before: re.Match[str]) -> bool:
    """Return whether the text after the name is prose instead of a value.

    It is the line of a file, or the subject of a message.
    """
    return before.lastgroup == "name" and any(
        pattern.match(before.string, before.start())
        for pattern in (_NO_VALUE, _PROSE, _NUMBERED, _KEY_OF_ANYTHING)
    )


def _value_at(text: str, place: int, stop: int, name: str, *, in_element: bool) -> tuple[int, int]:
    """Return the span of the value that begins there and ends before `stop`, without its quotes."""
    if in_element and (content := _CONTENT.match(text, place, stop)):
        return content.span()
    if quoted := _QUOTED.match(text, place, stop) or _IN_A_CALL.match(text, place, stop):
        return quoted.span("value")
    form = (
        _OF_HEADER if _HEADER.fullmatch(name) else _IN_BRACKETS if text[place : place + 1] in "[({" else _BARE
    )
    found = form.match(text, place, stop)
    return found.span() if found else (place, place)
