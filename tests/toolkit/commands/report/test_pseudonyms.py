"""Names of people and machines are replaced; similar words are kept."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.commands.report.pseudonyms import Masks, Names, users_in

PIECES = (
    " ",
    "/",
    "@",
    ":",
    "=",
    "-",
    ".",
    "annette",
    "gpu-a100-",
    "10.",
    "::",
    "/home/",
    "~",
    "\n",
    "x",
    "7",
    "[",
    "]",
    ",",
)
NAMES = Names(
    folders=frozenset({"/data/home/annette"}),
    users=frozenset({"annette", "li", "torch"}),
    hosts=frozenset({"gpu-a100-007.cluster.uni.example", "gpu-a100-012", "r2d2", "login", "vm"}),
    others={"nlp-group": "ACCOUNT"},
    words=frozenset({"torch", "vllm", "ray"}),
    versions=frozenset({"10.3.9.90", "12.8.4.1"}),
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/home/annette/run.sh:3", "~/run.sh:3"),
        ("HOME=/data/home/annette", "HOME=~"),
        ("/home/bert/models", "/home/USER/models"),
        ("/Users/bert", "/Users/USER"),
        ("/mnt/home/bert:/x", "/mnt/home/USER:/x"),
        ("/mnt/users/bert/x", "/mnt/users/USER/x"),
        ("/home/users/bert", "/home/users/USER"),
        ("/tmp/torchinductor_annette/x", "/tmp/torchinductor_USER/x"),
        ("owned by annette, not by root", "owned by USER, not by root"),
        ("ssh annette@gpu-a100-012", "ssh USER@node-012"),
        ("write to annette.k@uni.example please", "write to USER@HOST please"),
        ("gpu-a100-007.cluster.uni.example:6379", "node-007:6379"),
        ("gpu-a100-[001-112,120] differ", "node-[001-112,120] differ"),
        ("gpu-a100-044 which nobody asked", "node-044 which nobody asked"),
        ("login and login", "host-1 and host-1"),
        ("vm", "host-1"),
        ("master.cluster.uni.example", "host-1"),
        ("ip-10-0-3-7.ec2.internal and ip-10-0-3-8", "host-1 and host-2"),
        ("worker-3.cluster.local:8265", "host-1:8265"),
        ("ip=10.1.2.3, then 10.1.2.4, then 10.1.2.3", "ip=address-1, then address-2, then address-1"),
        ("tcp://203.0.113.9:29500", "tcp://address-1:29500"),
        ("fe80::1ff:fe23:4567:890a%eth0", "address-1%eth0"),
        ("[2001:db8::1]:6379", "[address-1]:6379"),
        ("ether 02:42:ac:11:00:02", "ether mac-1"),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "id-1"),
        ("account nlp-group", "account ACCOUNT"),
    ],
)  # fmt: skip
def test_texts_that_identify_a_person_are_masked(text: str, shown: str) -> None:
    assert Masks(NAMES)(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:6379 and 0.0.0.0 and ::1 and [::]:80",
        "nvidia-curand-cu12 10.3.9.90",
        "nvidia-cublas-cu12==12.4.5.8",
        "libcublas.so.12.4.5.8",
        "nvidia_cudnn_cu12-9.10.2.21.dist-info",
        "driver 570.86.15",
        "no_proxy=10.0.0.0/8,192.168.0.0/16",
        "169.254.169.254",
        "torch 2.9.0 of user torch",
        "threading.local() in ray.internal and torch.cluster",
        "12:34:56.789 std::vector<c10::Error>",
        "/home/ubuntu/verl",
        "name=li",
        "gpu0 gpu1",
        "git@github.com:verl-project/verl.git",
        "9f1c2d3e4b5a69788796a5b4c3d2e1f00f1e2d3c",
        "the relogin-page",
    ],
)
def test_similar_harmless_texts_are_kept(text: str) -> None:
    assert Masks(NAMES)(text) == text


def test_secrets_are_masked() -> None:
    token = "hf_" + "a" * 34
    assert token not in Masks(Names())(f"HF_TOKEN={token} Bearer abcdefghijkl")


def test_home_of_root_is_masked() -> None:
    assert (
        Masks(Names(folders=frozenset({"/ro" + "ot"})))("/ro" + "ot/.cache/x and /chroot")
        == "~/.cache/x and /chroot"
    )


def test_folder_that_is_the_home_is_no_user() -> None:
    masks = Masks(Names(folders=frozenset({"/job/home"}), users=frozenset({"home"})))
    assert masks("home folders are masked: /job/home/x") == "home folders are masked: ~/x"


def test_hosts_of_a_second_series_get_a_different_name() -> None:
    masks = Masks(Names(hosts=frozenset({"dgx-01", "a100-node-01"})))
    assert masks("dgx-01 a100-node-01 dgx-[02-09]") == "node-01 node2-01 node-[02-09]"


def test_users_are_found_by_home_folders() -> None:
    assert users_in(["in /home/bert/x", "and /Users/carla", "nobody"]) == {"bert", "carla"}


def test_users_are_found_by_e_mail_addresses() -> None:
    texts = [
        "mail alice@corp.example",
        "ssh dora@gpu-7 then git@github.com, noreply@x.example, torch@2.9 gcc@12",
    ]
    assert users_in(texts) == {"alice", "dora"}


def test_host_named_node_does_not_garble_sentences() -> None:
    assert (
        Masks(Names(hosts=frozenset({"node", "worker"})))("on each node, the worker")
        == "on each node, the worker"
    )


def test_host_with_a_domain_is_masked() -> None:
    masks = Masks(Names(hosts=frozenset({"node.cluster.uni.example"})))
    assert masks("on each node: node.cluster.uni.example") == "on each node: host-1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node gpu-17.cluster.bigcorp.example failed", "node host-1 failed"),
        ("smb://nas01.bigcorp.example/share", "smb://host-1/share"),
        ("hdfs://namenode:8020/data", "hdfs://host-1:8020/data"),
        ("redis://***@cache.bigcorp.example:6379", "redis://***@host-1:6379"),
        (
            "tcp://localhost:1 ssh://git@github.com/a/b tcp://10.0.0.1:5",
            "tcp://localhost:1 ssh://***@github.com/a/b tcp://address-1:5",
        ),
        ("https://docs.example.org/x", "https://docs.example.org/x"),
    ],
)
def test_servers_of_ones_own_are_masked(text: str, shown: str) -> None:
    assert Masks(Names())(text) == shown


def test_one_letter_names_do_not_garble_sentences() -> None:
    masks = Masks(Names(users=frozenset({"a"}), hosts=frozenset({"n"})))
    assert masks("a node has n GPUs") == "a node has n GPUs"


@settings(max_examples=cases(25), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(max_size=20))
def test_names_are_masked_in_any_surroundings(around: str, more: str) -> None:
    shown = Masks(NAMES)(
        f"{around} annette {more} gpu-a100-012 /data/home/annette/{around} 10.1.2.3 {around}"
    )
    words = shown.split()
    assert not {"annette", "gpu-a100-012", "10.1.2.3"} & set(words)
    assert "/data/home/annette/" not in shown


@pytest.mark.parametrize("piece", ["a.", "/a", "a1.", "1.", ":", "a@", "-", "/home", "0:", "ip-1-"])
def test_long_texts_are_masked_quickly(piece: str) -> None:
    begun = time.process_time()
    Masks(NAMES)(piece * (20_000 // len(piece)))
    assert time.process_time() - begun < 10  # a pattern that goes back takes minutes
