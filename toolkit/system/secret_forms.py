"""Masks values next to a secret's name that are not written as assignments.

Pairs, blocks of YAML, XML, percent-encoded text, prose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# What is probably a secret where only prose or a list is around it: letters and digits, and no name of a
# variable. Every repeat is bounded that may begin at many places of one line: otherwise 60 kB of the same
# word would take minutes.
_SIGN = r"[\w+=~@!#%^&*-]"
_LIKELY = (
    rf"(?!(?:[A-Z][A-Z0-9]{{0,60}}|[a-z][a-z0-9]{{0,60}})(?:[_-][A-Za-z0-9]{{1,60}}){{1,20}}(?!{_SIGN}))"
    rf"(?={_SIGN}{{0,400}}\d)(?={_SIGN}{{0,400}}[A-Za-z])(?:{_SIGN}{{401,}}|{_SIGN}{{12,400}}(?![\w/:(\[]"
    r"|\.\w))"
)
# Not what words and numbers make up: model-00001, 128k_tokens, reward_fn_key2, nccl-2.21.
_PART = r"(?:[A-Z]?[a-z]{1,40}|[A-Z]{1,40})?(?:\d{1,20}[A-Za-z]{0,2})?"
_UNLIKE_A_NAME = rf"(?!(?:{_PART}[-_.:/+@=]){{0,20}}{_PART}[-_.,;:!?]{{0,3}}(?:[\s\"'`)\]}}]|\Z))"
_HINT = r"(?i:key|token|secret|pass|pw|cred|auth|psk|pin|sas|jwt|cookie)"
_NAME = rf"(?<![\w.-])(?P<name>[\w.-]{{0,120}}{_HINT}[\w.-]{{0,120}})"
# What follows a word shows whether it can be a name; to search each word for a hint takes longer.
# The `-` of an arrow may be taken for a part of the word.
_IN_QUOTES = r"(?<![\w.-])(?=[\w.-]{2,246}[\"'])"
_BEFORE_AN_ARROW = r"(?<![\w.-])(?=[\w.-]{2,247}[\"']?\s*(?:=>|-?>|[|\u2502\u2503]|<<<|to\s))"
_BEFORE_A_SPACE = r"(?<![\w.-])(?=[\w.-]{2,246}\s)"
_WORD = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'|]+)"
_CURL = r"\bcurl\b[^\n]{0,200}?\s"
_PERCENT = r"%22|\\+u0022"
# A mark is a part of all that its form matches, and quickly found: a text without it is not searched for the
# form. The empty mark is in every text.
_FORMS = tuple(
    (re.compile(mark), re.compile(rf"(?P<before>{before})(?P<value>{value})"))
    for mark, before, value in (
        # ("HF_TOKEN", "..."), HF_TOKEN => ..., read HF_TOKEN <<< ..., setx HF_TOKEN ...
        (
            r"[\"']\s*,\s*[bfru]?[\"']",
            rf"{_IN_QUOTES}{_NAME}[\"']\s*,\s*[bfru]?[\"']",
            rf"{_LIKELY}(?=[\"'])",
        ),
        (
            "",
            rf"{_BEFORE_AN_ARROW}{_NAME}[\"']?\s*(?:=>|->|[|\u2502\u2503]|<<<|\s+to\s)\s*[\"']?",
            _LIKELY,
        ),
        (
            "",
            (
                rf"{_BEFORE_A_SPACE}(?P<name>(?=[\w.-]{{0,120}}[_.-])[\w.-]{{0,120}}{_HINT}"
                r"\w{0,120})\s+[\"']?"
            ),
            _LIKELY,
        ),
        # <add key="Password" value="..."/>, <entry key="password">...</entry>
        (
            "key=|name=",
            (
                r"<\w+\s[^<>\n]{0,400}?\b(?:key|name)=[\"'](?P<name>[\w.:-]{1,200})[\"'](?:"
                r"[^<>\n]{0,400}?\bvalue=[\"']|[^<>\n]{0,400}>)"
            ),
            r"[^\"'<>\n]+",
        ),
        ("", r"(?<![\w.-])-{0,2}(?:\w+_)?(?P<pair>ak|sk|AK|SK)[\"']?\s*[=: ]\s*[\"']?", _LIKELY),
        (r"login\(", r"(?<!\w)login\(\s*[\"'](?P<call>)", r"[^\"'\n]{8,}(?=[\"'])"),
        ("passw", r"(?m:^)[ \t]*(?P<line>password|passwd)\s+", r"(?=\S*[\d!-/:-@])\S{6,}(?=\s*(?m:$))"),
        (
            "",
            (
                r"(?i:\b(?P<prose>(?:api|access|secret|private)[ _-]?key|apikey|token|password|passwd"
                r"|passphrase|secret)\s+(?:(?:provided|given|used)\s*:?\s+)?)[\"'`]?"
            ),
            _LIKELY,
        ),
        # API_KEY=$(echo ...), API_KEY=$(cat <<EOF, api_key = ("...")
        (
            r"(?:\$\(|`)\s*(?:echo|printf|cat)",
            rf"{_NAME}\s*=\s*[\"']?(?:\$\(|`)\s*(?:(?:echo|printf)\s+|cat\s*<<-?\s*\S{{1,80}}\n)",
            r"[^)`\n]+",
        ),
        (r"=\s*\(\s*[bfru]?[\"']", rf"{_NAME}\s*=\s*\(\s*[bfru]?[\"'](?=[^\"'\n]*[\"']\s*\))", r"[^\"'\n]+"),
        # password: &anchor ..., password: !!str ..., a value that begins or goes on behind a backslash,
        # <![CDATA[...]]>, quotes as entities
        (r":[ \t]+[&!]", rf"{_NAME}[\"']?:[ \t]+(?:[&!][\w!.-]*[ \t]+)+[\"']?", r"[^\s\"'#]+"),
        (r"\\\n", rf"{_NAME}=[\"']?[^\s\"'\\]{{0,400}}\\\n", r"[^\s\"'\\]+"),
        (r"<!\[CDATA", r"<(?P<name>[\w.:-]+)(?:\s[^<>\n]*)?><!\[CDATA\[", r"[^\]\n]+"),
        ("=&", rf"{_NAME}=&(?:quot|apos|#3[49]);", r"[^&\s]+"),
        ("::add-mask::", r"::add-mask::", r"\S+"),
        # A channel of conda; a forum's topic has its number there.
        ("/t/", r"https?://[^\s/]+/t/", r"(?=[\w-]*\d)[\w-]{16,}(?=/)(?!/\d+(?:[/?#\s]|\Z))"),
        (
            r"ftqq\.com|day\.app|hc-ping\.com",
            r"\b(?:sctapi\.ftqq\.com|api\.day\.app|hc-ping\.com)/",
            r"[^\s\"'<>]+",
        ),
        # Options of programs, and what is piped into them.
        ("curl", r"\bcurl\b[^\n]{0,200}?\s(?:-b|--cookie)[\s=]*(?=[\"']?[\w.-]+=)", _WORD),
        ("curl", r"\bcurl\b[^\n]{0,200}?\s(?:-E|--cert)[\s=]*[^\s:]+:", _WORD),
        ("ossutil|openssl", r"\b(?:ossutil(?:64)?|openssl)\b[^\n]{0,200}?\s-[kK]\s+", _WORD),
        (
            "coscmd|useradd|htpasswd",
            r"\b(?:coscmd\b[^\n]{0,200}?\s-s|useradd\b[^\n]{0,200}?\s-p|htpasswd\s+-\w*n\w*\s+\S+)\s+",
            _WORD,
        ),
        ("--from-literal", r"--from-literal[\s=][\"']?[\w.-]+=", r"[^\s\"']+"),
        ("mount", r"\bmount\b[^\n]{0,200}?\buser(?:name)?=[\w.\\-]+%", r"[^\s,\"']+"),
        ("xfreerdp", r"\bxfreerdp\b[^\n]{0,200}?\s/p:", _WORD),
        (
            "chpasswd|kinit|vncpasswd|-pass",
            r"\b(?:echo|printf)\s+(?:-n\s+)?(?!-)",
            rf"{_WORD}(?=\s*\|\s*[^\n|]*(?:\b(?:chpasswd|kinit|vncpasswd)\b|-pass\s+stdin\b))",
        ),
        (
            "<<<",
            r"\b(?:wandb|swanlab|hf|huggingface-cli)\b[^\n|<]{0,80}?\blogin\b[^\n|<]{0,200}<<<\s*",
            _WORD,
        ),
        (
            "<<<",
            r"\b(?:chpasswd|kinit|vncpasswd|cryptsetup|su\s|passwd\s+--stdin)[^\n|<]{0,200}<<<\s*",
            _WORD,
        ),
        # user:password and key: of curl -sLu and httpie, password files of PostgreSQL and browsers, headers
        # with several parts
        (
            "curl",
            rf"{_CURL}(?:-[A-Za-z]{{1,20}}[uU]|--user)[\s=]*[\"']?[\w.+@\\-]{{1,200}}:(?!//)",
            r"[^\s\"':]+",
        ),
        (
            "curl",
            rf"{_CURL}(?:-[A-Za-z]{{0,20}}u|--user)[\s=]*[\"']?",
            r"(?=[^\s:]{0,400}\d)[^\s:\"']{12,400}(?=:[\"']?(?:\s|\Z))|[^\s:\"']{20,400}(?=:[\"']?(?:\s|\Z))",
        ),
        (
            r"\bhttps?\s",
            r"\bhttps?\s+(?:[^\n]{0,200}?\s)?(?:-a|--auth)[\s=]+[\"']?(?!\d+\.[\d.]+:\d)[\w.@-]+:",
            r"[^\s\"']+",
        ),
        # Other ports than those of PostgreSQL are in any log: node-1:8000:worker:rank0:abc-123-def.
        (
            r":(?:5432|6432|\*):",
            (
                r"(?m:^)[ \t]*(?:[\w./-]+:(?:5432|6432)|\*:(?:\*|5432|6432)|(?:localhost|[\w-]+(?:\."
                r"[\w-]+)+):\*):(?!\d+:)[^\s:/]+:(?!\d+:)[^\s:/]+:"
            ),
            rf"{_UNLIKE_A_NAME}(?=\S*[\d!-.:-@])\S{{6,}}(?=\s*(?m:$))",
        ),
        (
            r"\t",
            (
                r"(?m:^)(?:#HttpOnly_)?(?:localhost|\.?[\w-]+(?:\.[\w-]+)+)\t(?:TRUE|FALSE)\t/[^\t\n]*\t"
                r"(?:TRUE|FALSE)\t(?:0|\d{9,})\t[^\t\n]+\t"
            ),
            r"[^\t\n]+",
        ),
        ("", r"(?i:authorization)[\"']?:\s*(?i:digest)\s+", r"(?:[\w-]+=\\*(?:\"[^\"\n]*\"|[^\s,]+)[,\s]*)+"),
        # {"value": ..., "name": "HF_TOKEN"}
        (
            "value",
            r"(?<![\w.:=-])value[\"']?[ \t]*:[ \t]*[\"']?",
            (
                rf"{_UNLIKE_A_NAME}[^\s\"',]{{6,400}}(?=[\"']?,?\s{{0,80}}[\"']?name[\"']?[ \t]*:[ \t]*"
                r"[\"']?(?P<name>[\w.-]{1,200}))"
            ),
        ),
        # Programs that store a secret.
        (
            r"secret\s+set",
            r"\b(?:gh|glab)\s+secret\s+set\b[^\n]{0,200}?\s(?:-b|--body|-v|--value)[\s=]+",
            _WORD,
        ),
        (
            "kaggle",
            r"\bkaggle\s+config\s+set\b(?=[^\n]{0,200}\skey\b)[^\n]{0,80}?\s(?:-v|--value)[\s=]+",
            _WORD,
        ),
        ("poetry", r"\bpoetry\s+config\s+(?:--local\s+)?(?:http-basic\.\S+\s+\S+|pypi-token\.\S+)\s+", _WORD),
        (
            "rclone",
            (
                rf"\brclone\s+config\s+(?:create|update)\b[^\n]{{0,200}}?\s(?P<name>[\w-]{{0,60}}{_HINT}"
                r"[\w-]{0,60})[\s=]+(?![\"']?https?://)"
            ),
            _WORD,
        ),
        (
            ":_auth|:_password",
            r"\b(?:npm|pnpm|yarn)\s+config\s+set\s+\S{0,400}:_(?:auth\w{0,20}|password)[\s=]+",
            _WORD,
        ),
        ("nmcli", r"\bnmcli\b[^\n]{0,200}?\s(?:password|\S{1,80}\.psk)\s+", _WORD),
        ("sqlplus", r"\bsqlplus\s+(?:-\w{1,20}\s+){0,6}[\w.-]{1,80}/", r"[^\s@\"']+"),
        (
            "",
            (
                r"(?i:\b(?:(?:api|access|secret|private)[ _-]?key|apikey|token|password)\s+(?:provided|given"
                r"|used)\s*:)\s+[\"'`]?"
            ),
            rf"{_UNLIKE_A_NAME}(?=\S*\d)(?=\S*[A-Za-z])[^\s\"'`]{{6,}}",
        ),
        ("--token-id", r"\bmodal\s+token\s+set\b(?:[^\n]|\\\n){0,200}?\s--token-id[\s=]+", _WORD),
        (r"\)=\(", r"(?i:\b(?P<key>key)\s+\([^()]*key\)=\()", r"[^()\n]+"),
    )
)
# api_key%3D..., %22token%22%3A%22...
_PERCENT_ENCODED = re.compile(
    rf"(?P<before>(?<![A-Za-z])(?P<name>[A-Za-z][A-Za-z_-]{{0,120}})(?:{_PERCENT})?(?:%3[AaDd]|\\+u003"
    rf"[AaDd]|(?<=0022):)(?:{_PERCENT})?)(?P<value>[^\s%&\"'\\<>]+)"
)
_HINTS = re.compile(
    rf"{_HINT}|ak\b|sk\b|AK\b|SK\b|login\(|kinit|cryptsetup|\bsu\s|\s-b|\s-E|--cert|ossutil|coscmd"
    r"|useradd|openssl|from-literal|mount|freerdp|ftqq|day\.app|hc-ping|\bcurl\b|\bhttps?\s|:\d{4,5}:"
    r"[^\s:]+:[^\s:]+:|:\*:|\t(?:TRUE|FALSE)\t|sqlplus|nmcli|poetry|value[\"']?\s*:|<<<|add-mask|/t/"
    r"|kind: Secret"
)
_BLOCK = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?P<list>(?:-[ \t]+)?)(?P<quote>[\"']?)(?P<name>[\w.-]+)(?P=quote):[ \t]*"
    r"(?P<style>[|>][-+\d]*)?[ \t]*\n(?P<lines>(?:(?P=indent)[ \t]+[^\s#][^\n]*(?:\n|\Z))+)"
)
_ITEM = re.compile(r"(?m)^([ \t]*(?:-[ \t]+)?)[^\s-][^\n]*")
_KUBERNETES = re.compile(r"^kind:[ \t]*[\"']?Secret\b", re.MULTILINE)
_DOCUMENT = re.compile(r"^---", re.MULTILINE)
_VALUE_OF_MAP = re.compile(r"(?m)^([ \t]*[\"']?[\w.-]+[\"']?:[ \t]+)[^\s|>][^\n]*")
_KEY_OF_MAP = re.compile(r"[ \t]*(?:-[ \t]+)?[\"']?[\w.-]+[\"']?:(?:[ \t]|$)", re.MULTILINE)


def named_values_masked(text: str, mask: str, suggests_secret: Callable[[str], bool]) -> str:
    """Return the text with the mask over values that follow a name for which `suggests_secret` is true."""
    if _HINTS.search(text) is None:
        return text

    def masked(found: re.Match[str]) -> str:
        name = found.groupdict().get("name")
        if name is not None and not suggests_secret(name):
            return found[0]
        quote = found["value"][0] if found["value"][0] in "\"'" else ""
        return f"{found['before']}{quote}{mask}{quote}"

    for mark, form in _FORMS:
        if mark.search(text):
            text = form.sub(masked, text)
    if "%3" in text or "u00" in text:
        text = _PERCENT_ENCODED.sub(masked, text)

    secrets = tuple(_secrets_of_kubernetes(text))

    def block_masked(found: re.Match[str]) -> str:
        is_map = not found["style"] and _KEY_OF_MAP.match(found["lines"])
        if (
            is_map
            and found["name"] in ("data", "stringData")
            and any(found.start() in document for document in secrets)
        ):
            return found[0][: found.start("lines") - found.start()] + _VALUE_OF_MAP.sub(
                rf"\1{mask}", found["lines"]
            )
        if is_map or not suggests_secret(found["name"]):
            return found[0]
        head = found[0][: found.start("lines") - found.start()]
        return head + _ITEM.sub(rf"\1{mask}", found["lines"])

    return _BLOCK.sub(block_masked, text) if "\n" in text else text


def _secrets_of_kubernetes(text: str) -> Iterator[range]:
    """Yield where the YAML documents of a text are that define a Secret of Kubernetes."""
    begin = 0
    for end in (*(found.start() for found in _DOCUMENT.finditer(text)), len(text)):
        if _KUBERNETES.search(text, begin, end):
            yield range(begin, end)
        begin = end
