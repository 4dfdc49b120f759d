"""Masking in log lines, and texts that only resemble a secret."""

from __future__ import annotations

import time

import pytest

from verl_doctor.toolkit.system.secret import MASK, is_secret, may_hold_secret, secrets_in, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("serve --api-key hunter2 --port 80", "serve --api-key *** --port 80"),
        ("huggingface-cli login --hf-token hunter2", "huggingface-cli login --hf-token ***"),
        ("docker run -e WANDB_API_KEY hunter2 image", "docker run -e WANDB_API_KEY *** image"),
        ("PGPASSWORD=pw1 psql", "PGPASSWORD=*** psql"),
        ("TOKEN=abc", "TOKEN=***"),
        ("SECRET_KEY=PLANTED_SECRET_17", "SECRET_KEY=***"),
        ("VLLM_HOST_PW=correcthorse", "VLLM_HOST_PW=***"),
        ("bad password 'hunter2x'", "bad password '***'"),
        ("https://u:pa/w#rd@host/x", "https://***@host/x"),
        ("/home/joe/https:/u:pw1@host/x", "/home/joe/https:/***@host/x"),
        ("+trainer.wandb_api_key=correct", "+trainer.wandb_api_key=***"),
        ("DB_PASSWORD_FILE=correcthorse", "DB_PASSWORD_FILE=***"),
        ("PWD=hunter2", "PWD=***"),
        ('password="pw1"', 'password="***"'),
        ('password = "corr,hunter2;horse" x', 'password = "***" x'),
        ("password=corr,hunter2;horse x", "password=*** x"),
        ("(token=abc)", "(token=***)"),
        ('pwd: "hunter2 with space"', 'pwd: "***"'),
        ("Authorization: Token hunter2", "Authorization: ***"),
        ('curl -H "Authorization: Token hunter2" https://x', 'curl -H "Authorization: ***" https://x'),
        ("{'Authorization': 'Token hunter2', 'Accept': 'json'}", "{'Authorization': '***', 'Accept': 'json'}"),
        ("Cookie: a=b; other=hunter2", "Cookie: ***"),
        ("https://x/y?X-Amz-Algorithm=A&X-Amz-Signature=b&z=1&sig=c", "https://x/y?X-Amz-Algorithm=A&X-Amz-Signature=***&z=1&sig=***"),
        ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=abc", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=***"),
        ("b'HF_TOKEN': b'abc'", "b'HF_TOKEN': b'***'"),
        ('{"name":"WANDB_API_KEY","value":"abc"}', '{"name":"WANDB_API_KEY","value":"***"}'),
        ('api_key=\\"abc\\"', 'api_key=\\"***\\"'),
        ('"{\\"api_key\\": \\"abc\\", \\"b\\": 1}"', '"{\\"api_key\\": \\"***\\", \\"b\\": 1}"'),
        ("token  =  abc", "token  =  ***"),
        ("API key: abc", "API key: ***"),
        ("auth=['joe', 'hunter2'] x", "auth=*** x"),
        ("ssh joe:hunter2@host", "ssh joe:***@host"),
        ("wandb login --relogin 0123abcd", "wandb login --relogin ***"),
        ("swanlab login -k 0123abcd", "swanlab login -k ***"),
        ("docker login -u joe -p correct", "docker login -u joe -p ***"),
        ("mysql -u root -pcorrect runs", "mysql -u root -p*** runs"),
        ("+a.tokens=[x1y,z2w]", "+a.tokens=***"),
        ("Password for 'https://host': correct", "Password for 'https://host': ***"),
        ('api_key=SecretStr("correct")', 'api_key=SecretStr("***")'),
        ("WANDB_API_KEY is 0123456789abcdef0123", "WANDB_API_KEY is ***"),
        ("bad eyJhbGciOiJI.eyJzdWIiOiI.SflKxwRJSM_x9", "bad ***"),
        ("https://hooks.slack.com/services/T1/B2/abc", "https://hooks.slack.com/services/***"),
        ("password: 12345", "password: ***"),
        ("wandb.login(key='0123abcd')", "wandb.login(key='***')"),
        ("curl -u joe:hunter2 https://x", "curl -u joe:*** https://x"),
        ("sshpass -p hunter2 ssh x", "sshpass -p *** ssh x"),
        ("os.environ['HF_TOKEN'] = 'abc'", "os.environ['HF_TOKEN'] = '***'"),
        ("setenv HF_TOKEN abc", "setenv HF_TOKEN ***"),
        ('os.environ.setdefault("HF_TOKEN", "Zq7hKd93mPw2")', 'os.environ.setdefault("HF_TOKEN", "***")'),
        ("WANDB_API_KEY => Zq7hKd93mPw2", "WANDB_API_KEY => ***"),
        ("read -r WANDB_API_KEY <<< Zq7hKd93mPw2", "read -r WANDB_API_KEY <<< ***"),
        ("setx WANDB_API_KEY Zq7hKd93mPw2", "setx WANDB_API_KEY ***"),
        ("secret_access_key Zq7hKd93mPw2", "secret_access_key ***"),
        ("Invalid API key provided: Zq7hKd93mPw2.", "Invalid API key provided: ***."),
        ("invalid token Zq7hKd93mPw2", "invalid token ***"),
        ("ak=Zq7hKd93mPw2 sk=Xq7hKd93mPw2", "ak=*** sk=***"),
        ("password: |\n  abc", "password: |\n  ***"),
        ("secrets:\n  - abc\n  - def\nb: 1", "secrets:\n  - ***\n  - ***\nb: 1"),
        ('<add key="Password" value="abc"/>', '<add key="Password" value="***"/>'),
        ("x?a=b%26api_key%3Dabc%26d", "x?a=b%26api_key%3D***%26d"),
        ("%22token%22%3A%22abc%22", "%22token%22%3A%22***%22"),
        ('password="""abc def"""', 'password="""***"""'),
        ("api_key=r'abc'", "api_key=r'***'"),
        ("export API_KEY=$(echo abc)", "export API_KEY=*** ***)"),
        ("export API_KEY=$(cat <<EOF\nabc\nEOF\n)", "export API_KEY=*** <<EOF\n***\nEOF\n)"),
        ("wandb.login('0123456789abcdef')", "wandb.login('***')"),
        ("curl -b 'session=abc' https://h", "curl -b '***' https://h"),
        ("kubectl create secret generic x --from-literal=k=abc1", "kubectl create secret generic x --from-literal=k=***"),
        ("echo 'root:abc1' | chpasswd", "echo '***' | chpasswd"),
        ("++env={HF_TOKEN:abc,b:1}", "++env={HF_TOKEN:***}"),
        ("contrase\u00f1a=abc", "contrase\u00f1a=***"),
        ("https://api.day.app/abc/x", "https://api.day.app/***"),
        ("ENV HF_TOKEN 0123abcd", "ENV HF_TOKEN ***"),
        ("aws configure set aws_secret_access_key abc", "aws configure set aws_secret_access_key ***"),
        ("<server><password>a b</password></server>", "<server><password>***</password></server>"),
        ('<privateKey type="pem">abc\nx', '<privateKey type="pem">***\nx'),
        ("ipmitool -U admin -P hunter2 chassis", "ipmitool -U admin -P *** chassis"),
        ("ALTER USER joe identified by 'hunter2'", "ALTER USER joe identified by '***'"),
        ("密码: hunter2, 口令=hunter2", "密码: ***, 口令=***"),
        ("password\uff1dabc 访问密钥\uff1aabc", "password\uff1d*** 访问密钥\uff1a***"),
        ("\x1b[31mHF_TOKEN\x1b[0m=\x1b[1;32mabc", "\x1b[31mHF_TOKEN\x1b[0m=\x1b[1;32m***"),
        ("--password \\\n  abc", "--password \\\n  ***"),
    ],
)  # fmt: skip
def test_value_is_masked_and_its_name_kept(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "password: &pw {}",
        "password: !!str {}",
        "export WANDB_API_KEY=\\\n{}",
        "export PASSWORD=hun\\\n{}",
        "printf '%s' {} | docker login -u me --password-stdin",
        'wandb login <<< "{}"',
        "<password><![CDATA[{}]]></password>",
        "conda config --add channels https://conda.example/t/{}/labs",
        "::add-mask::{}",
        "\u2502 hf_token \u2502 {} \u2502",
        "token=&quot;{}&quot;",
        "kind: Secret\nstringData:\n  anything: {}\n",
        "apiVersion: v1\nkind: Secret\ndata:\n  anything: {}\n  more: abc\n",
        "-----BEGIN RSA PRIVATE KEY-----\n{}QICacB9GGVPiGD4IpNcYtD39bly3mL9XS5A113tA\nUSICacB9GGVPiGD4IpNcYtD39bly3mL9XS5A113tA",
        "sshpass -f - -p '{}' ssh h",
        "rar x -hp{} a.rar",
        "ldapadd -x -D cn=x -w{} -f f",
        "ngrok authtoken {}",
        "rclone obscure {}",
        "cargo login {}",
        "snmpwalk -v2c -c {} h",
        "lftp -u joe,{} sftp://h",
        "mosquitto_pub -u joe -P {}",
        "sqlcmd -S h -U sa -P {}",
        "beeline -u jdbc:hive2://h -n u -p {}",
        "cryptsetup open d x <<< {}",
        'su - joe <<< "{}"',
        "export HF_TOKEN=$'{}'",
        "hf_token: $'{}'",
        'AzureKeyCredential("{}")',
        "SecretStr('{}')",
        'requests.get(u, auth=HTTPBasicAuth("joe", "{}"))',
        'aiohttp.BasicAuth("joe", "{}")',
        "Your API key is: {}",
        "[sudo] password for joe: {}",
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n{}OwtlZgq7ghdfSA9qSDKJ\n",
    ],
)
def test_rare_notations_of_a_secret_are_masked(text: str) -> None:
    secret = "hunter2Kx9wQz7Lm"
    shown = without_secrets(text.format(secret))
    assert secret not in shown
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "kind: ConfigMap\ndata:\n  batch: 512\n",
        "kind: Secret\nmetadata:\n  name: wandb-2\n",
        "https://host.example/t/topic/12345678/99",
        "https://forum.example/t/out-of-memory-in-step-12/12345",
        "kind: ConfigMap\ndata:\n  batch: 512\n---\nkind: Secret\n---\nkind: ConfigMap\ndata:\n  rate: 1e-5\n",
        "| key | value |",
        "\u2502 total_tokens \u2502 123456789012 \u2502",
        "data.train_files=/data/gsm8k/\\\ntrain.parquet",
        "#SBATCH --signal=B:USR1@300",
        "SecretStr(value)",
        "BasicAuth(user, os.environ)",
        "sudo: password for joe: incorrect, sorry",
        "the password is: not set here",
        "su - joe -c 'python3 train.py'",
        "sqlcmd -S host -i file.sql",
    ],
)
def test_similar_notations_are_kept(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("part", ["PuTTY-User-Key-File-", "Private-Lines: 1 ", "api_key", "token-%3A"])
def test_longer_text_takes_in_proportion_longer(part: str) -> None:
    def seconds(times: int) -> float:
        begun = time.process_time()
        without_secrets(f"PuTTY-User-Key-File-{part * times}")
        return time.process_time() - begun

    short = max(seconds(100), 0.001)
    assert seconds(1600) < 100 * short


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=64",
        "may hold a secret: HF_ENDPOINT",
        "read in one pass: a gigabyte",
        "DB_PASSWORD_FILE=/run/secrets/db",
        "export HF_TOKEN=$HF_TOKEN WANDB_API_KEY=${WANDB_API_KEY}",
        "pin_memory=True, cpu_pin=2, forward_pass=fast, pass_rate=0.5, keys=[a], monkey=george",
        "tokens: 512",
        "prompt tokens 100",
        "max_num_batched_tokens=8192, tokenizer='/models/Qwen', tokenizer_mode=auto",
        "--max-num-batched-tokens 8192 --tokenizer /models/Qwen --skip-tokenizer-init",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24576",
        "'prompt_key': 'prompt', 'reward_fn_key': 'data_source', 'image_key': 'images'",
        "full_key: data.seed_of_all",
        "unexpected key: model.layers.0",
        "opentelemetry-api: only read when tracing is switched on",
        "KeyError: 'lora_rank_2'",
        '{"key":"lora","n":3}',
        "sorted(names, key=lambda name: name)",
        "killed by sig=9, sig: SIGKILL",
        "PASS: 1200 tests",
        "PWD=/data/verl",
        "SigBlk:	0000000000010000",
        "google-auth==2.40.3",
        "{'auth': {}, 'available_node_types': {}}",
        "HF_TOKEN: not set, API key: missing, auth=ok",
        "docker run --user 1000:1000 image",
        "token usage: 0.34, #new-token: 4096, #cached-token: 0",
        "pad_token='<|endoftext|>', eos_token: <|im_end|>, bos_token_id=151643, prompt_token_ids=[1, 2]",
        "perf/total_num_tokens:123456 - timing_per_token_ms/gen:0.051",
        "token=None, use_auth_token=False, api_key: null",
        "rollout_token_veto_threshold=1e-4",
        "HF_TOKEN is not set, pass --hf-token or log in with huggingface-cli login",
        "call wandb login from the command line",
        "HF_TOKEN is not set",
        "monkey is 12345678901234567",
        "perf/total_num_tokens:12345",
        "num.tokens=[1, 2]",
        "site-packages/aiohttp/cookies.py:33: DeprecationWarning",
        "ubuntu:22.04@sha256:0123",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "no_proxy=localhost,auth:80",
        "Author: joe, monkeys: 5, pattern: abc",
        "export HF_TOKEN before the start, env HF_TOKEN is not set",
        "the api_key HF_TOKEN_2_OF_THEM, token model.layers.0.self_attn, password authentication_v2_method",
        "('prompt_key', 'response_key_2'), 'HF_TOKEN', 'WANDB_API_KEY_2', token 1234567890123456",
        "batch['token_ids'] = ids, x[key] = 1, <|im_start|>user, <think>so</think>, List<String>x",
    ],
)
def test_harmless_text_is_kept(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("wandb_key", "hunter2", True),
        ("jwt", "abc", True),
        ("a_token", "abc", True),
        ("a_token", "12", False),
        ("password", "123456", True),
        ("auth", "null", False),
        ("prompt_key", "prompt", False),
        ("ppo_max_token_len_per_gpu", "12", False),
    ],
)
def test_secret_is_recognised_by_its_value_too(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


@pytest.mark.parametrize(
    "text",
    ["a={hf_token:abc,b:1}", "https://hooks.slack.com/services/T1/B2/abc", 'UID=sa;PWD="x"', "UID=sa;PWD=x"],
)
def test_texts_that_may_contain_a_secret(text: str) -> None:
    assert may_hold_secret(text)


@pytest.mark.parametrize("text", ['"$PWD"', "'$OLDPWD'", '--config-path="$PWD"'])
def test_path_of_the_shell_is_not_a_secret(text: str) -> None:
    assert not may_hold_secret(text)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("API101: verl imports a name", False),
        ("torch.distributed.elastic.multiprocessing.api: [WARNING] a rank failed", False),
        ("HF_API: abcdefgh12345", True),
        ("hfApi=abcdefgh12345", True),
    ],
)
def test_module_or_rule_named_api_is_not_a_key(text: str, masked: bool) -> None:
    assert ("***" in without_secrets(text)) is masked


def test_secrets_are_found_next_to_a_mask_that_covers_several_words() -> None:
    line = "curl -H 'Authorization: Bearer gT5nQ8vK2xRw' -u joe:hY7mP4zD9sLb https://example.com"
    assert list(secrets_in(line)) == ["Bearer", "gT5nQ8vK2xRw", "hY7mP4zD9sLb"]


@pytest.mark.parametrize("unseen", ["\u200b", "\u00ad", "\ufeff", "\u2060", "\u200f", "\u202e", "x\b"])
def test_what_nobody_sees_hides_no_secret(unseen: str) -> None:
    token = "hf_Qm9vbGVhbkFsZ2VicmFJc0Z1bjEyMzQ1"
    assert without_secrets(f"a\nbad token {token[:9]}{unseen}{token[9:]}\nb") == f"a\nbad token {MASK}\nb"
    assert without_secrets(f"WANDB_API_{unseen}KEY=hunter2Kx9wQz7Lm") == f"WANDB_API_KEY={MASK}"
    harmless = f"an or{unseen}dinary line"
    assert without_secrets(harmless) == harmless


def test_backspaces_without_end_are_no_matter() -> None:
    text = "a" * 5000 + "\b" * 5000
    assert without_secrets(text) == text
