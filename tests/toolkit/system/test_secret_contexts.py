"""Tokens without a form of their own, such as 32 hexadecimal digits, are masked wherever their context shows what they are."""

from __future__ import annotations

import base64
import random
import string
import tarfile
from collections.abc import Iterator

import pytest
from support.places import TESTS

from verl_doctor.toolkit.system.secret import without_secrets

_DICE = random.Random(34)
_HEX, _LETTERS = "0123456789abcdef", string.ascii_letters + string.digits
_BASE64, _URL = _LETTERS + "+/", _LETTERS + "-_"


def _of(alphabet: str, *lengths: int) -> str:
    """Return random groups of these lengths, each with a digit."""
    return "-".join(
        "".join(_DICE.choices(alphabet, k=length - 1)) + _DICE.choice("123456789") for length in lengths
    )


# Issuers whose tokens have no prefix: their documentation, or what they have issued.
TOKENS = {
    **{f"{name}: 32 hex": _of(_HEX, 32) for name in ("Datadog", "Azure OpenAI", "AssemblyAI", "Kaggle", "Twilio")},
    **{f"{name}: 40 hex": _of(_HEX, 40) for name in ("Weights & Biases", "Datadog app", "Deepgram", "Gitea", "Gerrit")},
    **{f"{name}: 64 hex": _of(_HEX, 64) for name in ("Together", "vast.ai", "Etherscan")},
    **{f"{name}: UUID": _of(_HEX, 8, 4, 4, 4, 12) for name in ("ModelScope", "Heroku", "Neptune", "Exa")},
    "Cloudflare: 37 hex": _of(_HEX, 37),
    "Cloudflare: 40": _of(_URL, 40),
    "Mailgun: three groups": _of(_HEX, 32, 8, 8),
    "Jenkins: 34 hex": "11" + _of(_HEX, 32),
    "AWS: 40 of base64": _of(_BASE64, 40),
    "Azure storage: 88 of base64": base64.b64encode(_DICE.randbytes(64)).decode(),
    "Slurm: a key of munge": base64.b64encode(_DICE.randbytes(48)).decode(),
    "Volcengine: base64": base64.b64encode(_DICE.randbytes(44)).decode(),
    "Comet: 25": _of(_LETTERS, 25),
    "ClearML: 50": _of(_LETTERS, 50),
    "Cohere: 40": _of(_LETTERS, 40),
    "Mistral: 32": _of(_LETTERS, 32),
    "Bitbucket: 20": _of(_LETTERS, 20),
    "Alibaba Cloud: 30": _of(_LETTERS, 30),
    "Tencent Cloud: 32": _of(_LETTERS, 32),
    "Confluent: 64": _of(_BASE64, 64),
    "Snowflake: a password": _of(_LETTERS, 16) + "!",
    "a password": "Hunter2xyz!",
    "a short password": "a8Kd92mQ",
}  # fmt: skip

# {t} is the token, {b} the base64 of a user and it.
NAMES = (
    *("export WANDB_API_KEY={t}", "DD_API_KEY='{t}' python train.py", "export MYTOKEN_PROD={t}", "VLLM_HOST_PW={t}", "DB_PWD={t}"),
    *("DOOR_PIN={t}", "SVC_CRED={t}", "X_AUTH={t}", "ENV WANDB_API_KEY {t}", "ARG TOKEN={t}", "      - HF_TOKEN={t}"),
    *('Environment="TOKEN={t}"', "#SBATCH --export=ALL,WANDB_API_KEY={t}", "env:\n- name: HF_TOKEN\n  value: {t}"),
    *('- value: "{t}"\n  name: WANDB_API_KEY', '{{"value": "{t}", "name": "HF_TOKEN"}}', "os.environ['X_TOKEN'] = '{t}'"),
    *("+trainer.wandb_api_key={t}", "'+ray_init.runtime_env.env_vars={{WANDB_API_KEY:{t},X:1}}'", "INFO client token={t} ok"),
)  # fmt: skip
HEADERS = (
    *("Authorization: Bearer {t}", "Authorization: Token {t}", "Authorization: Basic {b}", "authorization: apikey {t}"),
    *("Authorization: {t}", "Proxy-Authorization: Basic {b}", "x-api-key: {t}", "X-Auth-Token: {t}", "api-key: {t}"),
    *("Ocp-Apim-Subscription-Key: {t}", "PRIVATE-TOKEN: {t}", "headers={{'Authorization': 'Bearer {t}'}}", "X-Vault-Token: {t}"),
    *('Authorization: Digest username="u", realm="r", response="{t}", qop=auth', "Cookie: session={t}; theme=dark"),
    *("Set-Cookie: sessionid={t}; Path=/; HttpOnly", "cookies={{'session': '{t}'}}"),
    *(".x.com\tTRUE\t/\tTRUE\t1893456000\tsessionid\t{t}", "#HttpOnly_.x.com\tTRUE\t/\tFALSE\t0\tsid\t{t}"),
)  # fmt: skip
OPTIONS = (
    *("curl -H 'Authorization: Bearer {t}' https://x", "curl -u joe:{t} https://x", "curl -u 'joe:{t}' https://x"),
    *("curl --user=joe:{t} https://x", "curl -sSLujoe:{t} https://x", "curl -sSLu joe:{t} https://x", "curl -U joe:{t} https://x"),
    *("curl --oauth2-bearer {t} https://x", "curl -d 'client_secret={t}&a=b' https://x", "curl -F token={t} https://x"),
    *("curl -b 'session={t}' https://x", "wget --password={t} https://x", "http -a joe:{t} https://x", "https --auth joe:{t} x"),
    *("vllm serve m --api-key {t}", "tool --token={t}", 'tool --password "{t}"', "mysql -u root -p{t}", "redis-cli -a {t}"),
    *("sshpass -p {t} ssh u@h", "wandb login {t}", "docker login -u u -p {t} r.io", "aws configure set aws_secret_access_key {t}"),
    *("gh secret set X --body {t}", "kaggle config set -n key -v {t}", "poetry config http-basic.r u {t}", "sqlplus u/{t}@db"),
    *("poetry config pypi-token.r {t}", "rclone config create r s3 secret_access_key {t}", "nmcli dev wifi connect x password {t}"),
    *("npm config set //r/:_authToken {t}", "kubectl config set-credentials u --token={t}", "smbclient //h/s -U joe%{t}"),
    *("kubectl create secret generic s --from-literal=k={t}", "ray start --redis-password={t} --head", "vault login {t}"),
    *("https://x/?access_token={t}&a=1", "https://x/z?sig={t}", "amqp://u:{t}@h/", "redis://:{t}@h:6379/0", "ssh://u:{t}@h:22/r"),
    *("jdbc:postgresql://h/db?user=u&password={t}", "AccountName=x;AccountKey={t};EndpointSuffix=y", "Server=h;Uid=u;Pwd={t};"),
)  # fmt: skip
FILES = (
    *("machine api.wandb.ai login user password {t}", "machine h\n  login u\n  password {t}", "default login u password {t}"),
    *("machine h login u account a password {t}", "machine api.wandb.ai password {t}", "machine h.x\n\tpassword {t}"),
    *("db.host:5432:mydb:joe:{t}", "*:*:*:joe:{t}", "localhost:*:*:postgres:{t}", "# a note\n10.0.0.1:6432:a_b:c-d:{t}\n"),
    *('{{"auths": {{"r.io": {{"auth": "{b}"}}}}}}', '"identitytoken": "{t}"', '"registrytoken": "{t}"', "    token: {t}"),
    *("    client-key-data: {b}", "        id-token: {t}", "        refresh-token: {t}", "- name: u\n  user:\n    token: {t}"),
    *("[global]\nindex-url = https://u:{t}@r/simple", "extra-index-url =\n    https://u:{t}@r/simple", "[pypi]\npassword = {t}"),
    *("[default]\naws_secret_access_key = {t}", "[s]\napi_key = {t}", "secret: {t}", "secret_key   =   {t}", "[r]\npass = {t}"),
    *("//registry.npmjs.org/:_authToken={t}", "_auth={b}", "[client]\nuser=root\npassword={t}", "github.com:\n  oauth_token: {t}"),
    *('credentials "a.b" {{\n  token = "{t}"\n}}', "spring.datasource.password={t}", "<password>{t}</password>"),
    *('{{"username":"u","key":"{t}"}}', '{{"token": "{t}"}}', '{{"apiKey":"{t}"}}', '{{"accessToken":"{t}","expires":3600}}'),
    *('{{"dbPassword":"{t}"}}', '{{\\"api_key\\": \\"{t}\\"}}', '{{"env":{{"WANDB_API_KEY":"{t}"}}}}', "{{'api_key': '{t}', 'x': 1}}"),
)  # fmt: skip


@pytest.mark.parametrize("form", [*NAMES, *HEADERS, *OPTIONS, *FILES])
def test_token_without_a_prefix_is_masked_in_its_context(form: str) -> None:
    assert len(TOKENS) >= 34
    seen = []
    for issuer, token in TOKENS.items():
        if "://" in form.partition("{t}")[0].rpartition(" ")[2] and "@" in form and "/" in token:
            continue  # in a URL, a slash of a password is escaped
        both = base64.b64encode(f"joe:{token}".encode()).decode()
        shown = without_secrets(form.format(t=token, b=both))
        assert shown.count("\n") == form.count("\n")
        if (token if "{t}" in form else both) in shown:
            seen.append(issuer)
    assert seen == []


@pytest.mark.parametrize(
    "text",
    [
        "src/model.py:1234:5:E501:line-too-long-2",
        "worker.cpp:1043:17:18:error-12345",
        "gpu01:12345:12999 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
        "2026-11-29T10:1234:a:b: c12345",
        "curl -sSL https://host.example:8443/v1/models -o /tmp/models-2.json",
        "curl -LO https://host.example/a:b-c12345678901234:tag",
        "https://host.example/ -a b:c12345",
        "{'value': 0.123456, 'name': 'critic/score'}",
        "- name: BATCH\n  value: abc12345\n- name: HF_HOME\n  value: /models/12345",
        "a\tTRUE\tb\tFALSE\tc\td",
        "tokens used: 1234567",
        "machine learning password reset takes 12 minutes",
        "output: TokenOutput = await server.generate.remote(",
        "1. To use it as a list, use key=[value1,value2]",
    ],
)
def test_similar_text_is_kept(text: str) -> None:
    assert without_secrets(text) == text


def _real_logs() -> Iterator[tuple[str, str]]:
    with tarfile.open(TESTS / "verdict/logs.tar.xz") as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                yield member.name, file.read().decode("utf-8", "replace")


@pytest.mark.slow
def test_logs_of_real_runs_keep_nearly_all_of_their_lines() -> None:
    """The jobs of `tests/verdict` ran, and most of them failed: in each log and in all of them."""
    lines = changed = files = 0
    for name, text in _real_logs():
        before = [line for line in text.split("\n") if line.strip()]
        after = [line for line in without_secrets(text).split("\n") if line.strip()]
        different = sum(map(str.__ne__, before, after)) + abs(len(before) - len(after))
        assert different <= 0.02 * len(before), name
        lines, changed, files = lines + len(before), changed + different, files + 1
    assert files >= 100
    assert lines >= 50_000
    assert changed <= 0.001 * lines
