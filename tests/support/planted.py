"""Secrets planted in all input of verl-doctor, to be searched for in all of its output."""

from __future__ import annotations

import itertools
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.tokens import tokens

NAMES = (
    *("VLLM_HOST_PW", "VLLM_DB_PASS", "RAY_PWD_OLD", "NCCL_PIN_CODE", "HF_CREDS", "WANDB_AUTH", "VERL_KEY_2", "RAY_TOKEN_NEW"),
    *("VLLM_SECRET_X", "PIN", "MY_PASSWORD", "hfToken", "TORCH_API_KEY", "SLURM_JWT_X", "WANDB_PASSWD", "HF_ACCESS_TOKENS"),
    *("SGLANG_COOKIE", "VLLM_PASSPHRASE", "DBPW", "UCX_OAUTH2", "NCCL_CREDENTIALS", "PASS", "RAY_CRED_STORE", "AUTH_TOKEN"),
)  # fmt: skip
"""Names of variables that suggest a secret, most of them of a kind that verl-doctor reads."""
KEYS = (
    *("trainer.wandb_api_key", "trainer.db_pw", "data.s3.secret", "trainer.auth", "reward_model.pass", "custom.login.pin"),
    *("a.credentials.b", "trainer.hfToken", "critic.token", "algorithm.private_key", "trainer.user_pwd", "x.y.passphrase"),
)  # fmt: skip
OPTIONS = ("--password", "--api-key", "--hf-token", "--db-pw", "--auth-secret", "--pin", "--user-pass")
# {} is the secret: programs that take one in a form of their own.
COMMANDS = (
    *("curl -u joe:{} https://h/x", "curl --user joe:{} https://h", "mysql -u root -p{} db", "mysqldump -h h -p{} db"),
    *("wandb login {}", "wandb login --relogin {}", "docker login -u joe -p {} h", "docker login --password {} h"),
    *("sshpass -p {} ssh h", "sshpass -p{} ssh h", "redis-cli -h h -a {} ping", "swanlab login -k {}", "zip -P {} a.zip b"),
    *("echo {} | docker login --password-stdin h", "echo {} | sudo -S ls", "twine upload -u __token__ -p {} d", "7z x -p{} a"),
    *("ldapsearch -D cn=a -w {} x", "openssl rsa -in k -passin pass:{}", "git clone https://joe:{}@h/r.git", "psql postgres://u:{}@h/d"),
    *("pip install --index-url https://u:{}@h/simple x", "rclone --sftp-pass {} ls", "smbclient -U joe%{} //h/s", "echo pw={}"),
    *("curl -H 'X-Api-Key: {}' https://h", "curl -H 'Authorization: Token {}' https://h", "curl 'https://h/?access_token={}&x=1'"),
    *("htpasswd -b f joe {}", "az login -u joe -p {}", "huggingface-cli login --token {}", "aws configure set aws_secret_access_key {}"),
    *("redis://:{}@h:6379/0", "amqp://u:{}@h//", "mongodb+srv://u:{}@h/x", "s3://id:{}@bucket/k", "ssh://u:{}@h:22/r", "joe:{}@h:22"),
)  # fmt: skip
LOGGED = (
    *("ValueError: bad password '{}'", 'raise E(api_key="{}")', "{{'HF_TOKEN': '{}'}}", "env: WANDB_API_KEY={}", "auth=('joe', '{}')"),
    *("password is {}", '{{"name": "DB_PW", "value": "{}"}}', "+ export MY_PW={}", "config.trainer.wandb_key: {}", "Cookie: a={}; b=c"),
)  # fmt: skip


@dataclass
class Planter:
    """Creates distinct secrets, and records them."""

    secrets: list[str] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(17))
    _tokens: Iterator[str] = field(
        default_factory=lambda: itertools.chain.from_iterable(map(tokens, itertools.count()))
    )

    def value(self) -> str:
        """Return a secret that only its name reveals."""
        drawn = "".join(self._random.choices(string.ascii_letters + string.digits, k=14))
        return self._kept(f"Zq{len(self.secrets) % 10}{drawn}")

    def token(self) -> str:
        """Return a secret that its form reveals."""
        return self._kept(next(self._tokens))

    def _kept(self, secret: str) -> str:
        self.secrets.append(secret)
        return secret

    def seen_in(self, output: bytes) -> list[str]:
        """Return the secrets of which a relevant part is in the text."""
        text = output.decode("utf-8", "replace")
        return [secret for secret in self.secrets if any(part in text for part in _parts(secret))]


def _parts(secret: str) -> list[str]:
    """Return the secret, and those of its words that cannot be guessed."""
    return [secret, *(word for word in re.findall(r"[A-Za-z0-9]{12,}", secret) if re.search(r"\d", word))]


def script(plant: Planter) -> str:
    """A launch script with secrets in variables, comments, commands, options and overrides."""
    lines = ["#!/bin/bash", f"# the token is {plant.token()}", f"# password: {plant.value()}"]
    lines += [f"export {name}={plant.value()}" for name in NAMES]
    lines += [f"export VLLM_EXTRA_{number}={plant.token()}" for number in range(20)]
    lines += [
        f"export VLLM_HOST_IP=10.0.0.1  # pw={plant.value()}",
        "export VLLM_USE_V1=0  # key " + plant.token(),
    ]
    lines += [command.format(plant.value()) for command in COMMANDS if "://" not in command.split()[0]]
    lines += [
        f'export VERL_URL_{number}="{command.format(plant.value())}"'
        for number, command in enumerate(COMMANDS)
        if "://" in command
    ]
    lines += [
        f'ray start --head --redis-password={plant.value()} --runtime-env-json \'{{"env_vars": {{"X_PW": "{plant.value()}"}}}}\''
    ]
    overrides = [f"+{key}={plant.value()}" for key in KEYS] + [f"{key}='{plant.value()}'" for key in KEYS]
    overrides += [f"+trainer.free_{number}={plant.token()}" for number in range(20)]
    overrides += [f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}={plant.value()}" for name in NAMES[:12]]
    overrides += [f"++env={{{name}:{plant.value()},b:1}}" for name in NAMES[:6]]
    overrides += [
        f"trainer.project_nam=https://u:{plant.value()}@h/x",
        f"data.train_fils=s3://id:{plant.value()}@b/k",
    ]
    options = [f"{option} {plant.value()}" for option in OPTIONS] + [
        f"{option}={plant.value()}" for option in OPTIONS
    ]
    words = " \\\n  ".join([*overrides, *options])
    return "\n".join([*lines, f"A_PW={plant.value()} python3 -m verl.trainer.main_ppo \\\n  {words}", ""])


def variables(plant: Planter) -> dict[str, str]:
    """Variables of the user's shell."""
    found = {f"{name}_{number}" if number else name: plant.value() for name in NAMES for number in range(1)}
    found |= {f"VLLM_FREE_{number}": plant.token() for number in range(20)}
    found |= {"https_proxy": f"http://u:{plant.value()}@p:1", "HF_ENDPOINT": f"https://u:{plant.value()}@hub"}
    found |= {"VLLM_ARGS": f"-u joe:{plant.value()}", "RAY_RUN": f"mysql -u r -p{plant.value()}"}
    found |= {"NCCL_NOTE": f"wandb login {plant.value()}", "TORCH_X": f"--password {plant.value()}"}
    return found


def files(plant: Planter, folder: Path) -> None:
    """Configuration files, a repository and a Ray environment next to the script."""
    (folder / "pyproject.toml").write_text(
        f'[tool.uv]\nindex-url = "https://u:{plant.value()}@h/simple"\n[tool.verl-doctor.sites]\n'
        f'model = "https://u:{plant.value()}@h/m"\n'
    )
    (folder / "env.yaml").write_text(
        "env_vars:\n"
        + "".join(f"  {name}: {plant.value()}\n" for name in NAMES[:8])
        + f"  VLLM_YAML: {plant.token()}\nworking_dir: https://u:{plant.value()}@h/x.zip\n"
    )
    (folder / "Dockerfile").write_text(
        f"FROM x\nENV VLLM_HOST_PW={plant.value()}\nENV NCCL_A={plant.token()}\n"
    )
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git/config").write_text(f'[remote "origin"]\n\turl = https://u:{plant.value()}@h/r.git\n')


def log(plant: Planter) -> str:
    """A log of a run that failed."""
    lines = [form.format(plant.value()) for form in (*LOGGED, *COMMANDS)]
    lines += [f"(pid=12) INFO the key {plant.token()} was read" for _ in range(60)]
    last = [
        "Traceback (most recent call last):",
        '  File "reward.py", line 3, in score',
        f'    call(api_key="{plant.value()}")',
    ]
    last += [f"ValueError: {form.format(plant.value())}" for form in LOGGED]
    return "\n".join([*lines, *last, f"RuntimeError: key {plant.token()} password={plant.value()}", ""])
