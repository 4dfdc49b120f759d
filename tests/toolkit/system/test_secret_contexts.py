"""Tokens without a form of their own, such as 32 hexadecimal digits, are masked wherever their context shows what they are."""

from __future__ import annotations

import base64
import random
import string
import tarfile
import time
from collections.abc import Iterator

import pytest
from support.places import TESTS

from verl_doctor.toolkit.system import secret_forms
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
    *("modal token set --token-id ak-{t} --token-secret as-{t}", "modal token set --token-secret=as-{t} --token-id=ak-{t}"),
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

# One or more for each of `secret_forms._FORMS`.
RARER = (
    *('("HF_TOKEN", "{t}")', "HF_TOKEN' ,\tb'{t}'", "HF_TOKEN => {t}", "set HF_TOKEN {t}", '<add key="Password" value="{t}"/>'),
    *("<entry name='password'>{t}</entry>", "my_ak: {t}", "login( '{t}')", "  password {t}", "passwd {t}", "API KEY used: {t}"),
    *("API_KEY=$(echo {t})", "API_KEY = `cat <<EOF\n{t}\n`", "API_KEY=$( printf {t})", 'api_key =  ( b"{t}")', "api_key=('{t}' )"),
    *("password: &anchor {t}", "password:\t!!str {t}", "password=abc\\\n{t}", "<password><![CDATA[{t}]]>", "password=&quot;{t}"),
    *("::add-mask::{t}", "https://h/t/{t}/x", "https://sctapi.ftqq.com/{t}", "api.day.app/{t}", "hc-ping.com/{t}"),
    *("curl -b a={t}", "curl --cookie 'a={t}'", "curl -E a:{t}", "curl --cert a:{t}", "openssl enc -k {t}", "ossutil64 cp -K {t}"),
    *("coscmd config -s {t}", "useradd u -p {t}", "htpasswd -nb u {t}", "--from-literal=a={t}", "mount x -o username=a%{t}"),
    *("xfreerdp /u:a /p:{t}", "echo {t} | chpasswd", "printf {t} | kinit", "echo {t} | vncpasswd", "echo {t} | openssl -pass stdin"),
    *("wandb login <<< {t}", "hf auth login <<< {t}", "kinit a <<< {t}", "su a <<<{t}", "passwd --stdin a <<< {t}"),
    *("curl -sLu joe:{t}", "curl --user joe:{t}", "curl -u {t}: x", "http -a joe:{t}", "https\t--auth joe:{t}", "http x --auth=joe:{t}"),
    *("h:5432:db:joe:{t}", "h:6432:db:joe:{t}", "*:*:db:joe:{t}", "localhost:*:db:joe:{t}", "*:5432:db:joe:{t}"),
    *("h.x\tTRUE\t/\tTRUE\t1893456000\tsid\t{t}", 'AUTHORIZATION: digest response="{t}"', "value: {t}, name: HF_TOKEN"),
    *("gh secret set A -b {t}", "glab  secret  set A --value={t}", "kaggle config set -n key -v {t}", "poetry config pypi-token.r {t}"),
    *("rclone config create r s3 secret_access_key {t}", "npm config set //r/:_authToken {t}", "yarn config set r:_password {t}"),
    *("nmcli dev wifi connect x password {t}", "sqlplus u/{t}@db", "Api-Key provided: {t}", "modal token set --token-id {t}"),
    *("Key (api_key)=({t})", "KEY (Some_Key)=({t})"),
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


def test_mark_of_each_form_is_in_what_it_matches() -> None:
    """A text without the mark is not searched for the form."""
    met = dict.fromkeys((pattern for _, pattern in secret_forms._FORMS), 0)
    for text in (form.format(t=token) for form in RARER for token in TOKENS.values()):
        for mark, pattern in secret_forms._FORMS:
            for found in pattern.finditer(text):
                assert mark.search(found[0] + text[found.end() :]), (mark, found)
                met[pattern] += 1
    assert [pattern.pattern for pattern, times in met.items() if not times] == []


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


# What verl, vLLM, Ray and the tools around them print, with words, numbers and separators as in what is masked.
ORDINARY = r"""
{"value": "model-00001", "name": "checkpoint_key"}
{"value": "global_step_100", "name": "resume_token"}
- value: "actor-rollout-2", name: "reward_fn_key"
token provided: 128k_tokens
token used: 4096k
Access key provided: reward_fn_key2
machine gpu01.cluster password prompt shown
machine gpu01.cluster password expires2 on Monday
curl -sSLu https://example.com/file
curl -sSLU https://example.com/file-2 -o /tmp/file-2
rclone config update remote token_url https://idp.example.com/oauth2/v1
rclone config create remote s3 auth_url https://idp.example.com:5000/v3
is_train	TRUE	/data	FALSE	3	qwen2	0.53
row.1	TRUE	/data	FALSE	12	qwen2	0.53
node-1:8000:worker:rank0:abc-123-def
172.17.0.2:29500:master:port:nccl-2.21
db-1:5432:verl:trainer:checkpoint-step-100
INFO:2024:verl:trainer:checkpoint-step-100
(TaskRunner pid=12345) step:12 - global_seqlen/min:8192 - actor/entropy:0.31 - critic/score/mean:0.52
(WorkerDict pid=2211, ip=10.0.0.7) Before rollout offload, memory allocated (GB): 3.21, memory reserved (GB): 14.50
(main_task pid=8123) validation generation end, test_gen_batch meta info: {'eos_token_id': 151645, 'do_sample': False}
INFO 11-29 10:12:33 [gpu_model_runner.py:1843] Model loading took 14.2488 GiB and 3.210394 seconds
INFO 11-29 10:12:33 [kv_cache_utils.py:829] GPU KV cache size: 1,234,567 tokens
INFO 11-29 10:12:33 [loggers.py:118] Engine 000: Avg prompt throughput: 512.3 tokens/s, Running: 16 reqs, GPU KV cache usage: 34.5%
WARNING 11-29 10:12:33 [tokenizer.py:251] Using a slow tokenizer. This might cause a significant slowdown.
INFO 11-29 10:12:33 [parallel_state.py:1065] rank 3 in world size 8 is assigned as DP rank 0, PP rank 0, TP rank 3
INFO 11-29 10:12:33 [config.py:1770] Chunked prefill is enabled with max_num_batched_tokens=8192.
INFO:     10.0.0.7:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
2026-11-29 10:12:33,123	INFO worker.py:1879 -- Started a local Ray instance. View the dashboard at http://127.0.0.1:8265
2026-11-29 10:12:33,123	INFO scripts.py:895 -- Local node IP: 10.0.0.7
[2026-11-29 10:12:33,123 I 4211 4211] (raylet) node_manager.cc:1912: 3 workers started, port 10002:10032
(raylet) [2026-11-29 10:12:33,123 E 4211] (raylet) file_system_monitor.cc:116: /tmp/ray/session_2026-11-29 is over 95% full
(autoscaler +12s) Tip: use `ray status` to view detailed cluster status. Resources: {'GPU': 8.0, 'node:10.0.0.7': 1.0}
ray::WorkerDict.actor_rollout_generate_sequences() (pid=2211, ip=10.0.0.7, actor_id=3f1a, repr=<verl.WorkerDict object at 0x7f12>)
torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.
[rank3]:[E1129 10:12:33.123 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: OpType=ALLREDUCE
gpu01:4211:4399 [3] NCCL INFO comm 0x55d0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 9a000 commId 0x1f2e - Init COMPLETE
gpu01:4211:4399 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:10.0.0.7<0>
Training Progress:  12%|1         | 12/100 [10:12<1:14:33, 51.2s/it]
wandb: Tracking run with wandb version 0.19.8
wandb: Run data is saved locally in /data/wandb/run-20261129_101233-abc12345
Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:04,  1.35s/it]
dataset len: 7473, filter dataset len: 7471, prompt_key: prompt, max_prompt_length: 1024
actor_rollout_ref.rollout.multi_turn.tool_config_path=/data/tools/gsm8k_tool_config.yaml
trainer.resume_mode=auto trainer.default_local_dir=/ckpt/gsm8k-qwen2.5-7b trainer.nnodes=2
{'name': 'critic/score', 'value': 'mean-0.52', 'step': 12}
Checkpoint tracker file does not exist: /ckpt/latest_checkpointed_iteration.txt
Saved model to /ckpt/global_step_100/actor/model_world_size_8_rank_3.pt
local_global_step_folder: /ckpt/global_step_100
Special tokens have been added in the vocabulary, make sure the associated word embeddings are fine-tuned or trained.
Token indices sequence length is longer than the specified maximum sequence length for this model (2050 > 2048).
ValueError: Please set at least one of 'actor.ppo_micro_batch_size' or 'actor.ppo_micro_batch_size_per_gpu'
tail -f /tmp/ray/session_latest/logs/worker-3f1a-01000000-4211.out
http 200 -a 10.0.0.7:8000 health
10.0.0.7:6379:gcs:server:ready-2
vllm:num_requests_running{engine="0",model_name="Qwen2.5-7B"} 16.0
modal token set up for the workspace verl-2
""".strip().split("\n")


def test_ordinary_lines_are_kept() -> None:
    assert len(ORDINARY) >= 55
    assert [line for line in ORDINARY if without_secrets(line) != line] == []
    assert without_secrets("\n".join(ORDINARY)) == "\n".join(ORDINARY)


# Whatever begins a pattern: repeated, it may begin it everywhere.
BEGINNINGS = (
    *("value", "name", "key", "machine", "machine a.", "default login", "password", "token", "api_key", "HF_TOKEN", "KEY_FILE", "ak"),
    *("curl", "curl -u", "curl -b", "http", "https://", "://a:b", "a:b@", "mount", "echo", "printf", "cat <<", "key=$(cat<<", "kinit"),
    *("sqlplus", "sqlplus -", "nmcli", "rclone config update", "npm config set", "modal token set", "kaggle config set", "wandb login"),
    *("--password-stdin", "sudo -S", "docker login", "openssl", "<a key", "<![CDATA[", "Authorization", "Set-Cookie", "a:5432", "::add-mask::"),
    *("eyJaaaaaaaaa", "pypi-", "sk-a", "-----BEGIN PRIVATE KEY-----", "kind: Secret", "%22token", "Bearer", "login(", "KEY_FILE=/a", "export"),
)  # fmt: skip
SEPARATORS = ("", ":", "=", " ", ".", "'")
# Each of these took quadratic time.
ONCE_SLOW = (
    *("value:", "machine a.", "sudo -S ", "sqlplus -", "key=$(cat<<", "token=", "ak=", "KEY_FILE=/a,"),
    *("-----BEGIN PRIVATE KEY-----\n", "wandb login "),
)


def _grows_too_fast(part: str, most: int = 40_000) -> bool:
    """Return whether so many characters take far more than four times as long as a quarter of them, three times in a row."""

    def seconds(length: int) -> float:
        begun = time.process_time()
        without_secrets(part * (length // len(part)) + " @")
        return time.process_time() - begun

    return all(seconds(most) >= 9 * max(seconds(most // 4), 0.01) for _ in range(3))


@pytest.mark.slow
def test_no_text_takes_quadratic_time() -> None:
    assert [part for part in ONCE_SLOW if _grows_too_fast(part)] == []


@pytest.mark.slow
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_what_begins_a_pattern_may_be_repeated(beginning: str) -> None:
    assert [beginning + sign for sign in SEPARATORS if _grows_too_fast(beginning + sign, 16_000)] == []


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
