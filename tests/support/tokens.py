"""Tokens as their issuers make them, one of each kind, all made up."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator

# {a34}: 34 letters and digits; h: hexadecimal digits; u: those of base64 in URLs; b: of base64; d: digits; c: capitals and digits;
# l: small letters and digits.
_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
    "c": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
}
_PLACE = re.compile(r"\{([a-z])(\d+)\}")
UUID = "{h8}-{h4}-{h4}-{h4}-{h12}"
FORMS = f"""
hf_{{a34}} api_org_{{a34}} sk-{{a48}} sk-proj-{{u74}}T3BlbkFJ{{u74}} sk-ant-api03-{{u93}}AA sk-or-v1-{{h64}} wandb_v1_{{u40}}
gsk_{{a52}} xai-{{a80}} pplx-{{a48}} r8_{{a37}} nvapi-{{u64}} fw_1{{a22}} tgp_v1_{{u43}} csk-{{l48}} pcsk_{{a6}}_{{a63}}
lsv2_pt_{{h32}}_{{h10}} lsv2_sk_{{h32}}_{{h10}} ms-{UUID} pnu_{{l36}} ico-7{{a31}}
tvly-{{a32}} tvly-dev-{{u40}} e2b_{{h40}} rpa_{{a44}} KGAT_{{h32}} jina_{{a60}} vck_{{a56}} phx_{{a48}}
ghp_{{a36}} gho_{{a36}} ghu_{{a36}} ghs_{{a36}} ghr_{{a36}} github_pat_{{a22}}_{{a59}}
glpat-{{u20}} gldt-{{u20}} glrt-{{u20}} glcbt-{{a2}}_{{u20}} glptt-{{h40}} glft-{{u20}} glsoat-{{u20}} glagent-{{u50}} gloas-{{h64}}
glimt-{{u25}} GR1348941{{u20}} ATBB{{a32}} ATATT3xFfGF0{{u180}}={{h8}} pypi-AgEIcHlwaS5vcmc{{u120}} npm_{{a36}} rubygems_{{h48}}
oy2{{l43}} cio{{a32}} CLOJARS_{{l60}} dckr_pat_{{u27}} dckr_oat_{{u32}} AKCp5{{a68}} cmVmd{{a59}} sgp_{{h40}} sqp_{{h40}} squ_{{h40}}
CCIPAT_{{a22}}_{{h40}} bkua_{{h40}} PMAK-{{h24}}-{{h34}} rdme_{{l70}}
AKIA{{c16}} ASIA{{c16}} ABIA{{c16}} ABSK{{b128}} bedrock-api-key-{{b60}} AIza{{u35}} ya29.{{u60}} GOCSPX-{{u28}} 1//0{{u60}}
{{a3}}8Q~{{a34}} {{b86}}== dop_v1_{{h64}} HRKU-AA{{u58}} v1.0-{{h24}}-{{h146}} LTAI5t{{a18}} AKID{{a32}} AKLT{{a40}}
bce-v3/ALTAK-{{a20}}/{{h40}} AQVN{{u35}} fm2_{{b80}} fo1_{{u43}} nfp_{{a36}} vercel_blob_rw_{{a16}}_{{a30}} tk-us-{{u48}}
tskey-auth-{{a12}}CNTRL-{{a32}} dapi{{h32}} dapi{{h32}}-2 pscale_tkn_{{u43}} pscale_pw_{{u43}} sbp_{{h40}} sb_secret_{{u31}} npg_{{a16}}
hvs.{{u90}} hvb.{{u138}} {{a14}}.atlasv1.{{u60}} dp.pt.{{a43}} dp.st.prd.{{a43}} pul-{{h40}} AGE-SECRET-KEY-1{{c58}}
ops_eyJ{{u250}} api-{UUID} sdk-{UUID} eyJhbGciOiJIUzI1NiJ9.eyJ{{u40}}.{{u43}} eyJhcGlfYWRkcmVzcyI6{{a80}}
glsa_{{a32}}_{{h8}} glc_eyJ{{a60}} eyJrIjoi{{a60}} NRAK-{{c27}} NRJS-{{h19}} sntrys_eyJ{{b60}} sntryu_{{h64}} dt0c01.{{c24}}.{{c64}}
xoxb-{{d12}}-{{d12}}-{{a24}} xoxp-{{d12}}-{{d12}}-{{h32}} xapp-1-A{{c10}}-{{d13}}-{{h64}} {{d10}}:AA{{u33}}
MTk{{a21}}.{{u6}}.{{u38}} SG.{{u22}}.{{u43}} key-{{h32}} {{h32}}-us12 SK{{h32}} xkeysib-{{h64}}-{{a16}} xsmtpsib-{{h64}}-{{a16}}
sk_live_{{a24}} rk_live_{{a24}} sk_test_{{a24}} whsec_{{a32}} sq0atp-{{u22}} EAAA{{u60}} shpat_{{h32}} shpss_{{h32}}
FLWSECK_TEST-{{h32}}-X EZAK{{a54}} shippo_live_{{h40}} secret_{{a43}} ntn_{{a46}} lin_api_{{a40}} figd_{{u40}} pat{{a14}}.{{h64}}
2/{{d16}}/{{d16}}:{{h32}} CFPAT-{{u43}} tfp_{{u44}}_{{u14}} fio-u-{{u64}} p8e-{{a32}} sk.eyJ{{a80}}.{{a22}} EAAB1{{a60}}
""".split()


def tokens(seed: int = 17) -> Iterator[str]:
    """One token of each form, always the same ones."""
    chosen = random.Random(seed)
    for form in FORMS:
        yield _PLACE.sub(lambda place: _letters(chosen, place[1], int(place[2])), form)


def _letters(chosen: random.Random, alphabet: str, number: int) -> str:
    """Some characters; the first and the last are no signs, among them is a digit and a letter."""
    letters = _ALPHABETS[alphabet]
    signless = [letter for letter in letters if letter.isalnum()]
    drawn = [chosen.choice(letters) for _ in range(number)]
    drawn[0], drawn[-1] = chosen.choice(signless), chosen.choice(signless)
    if number > 2 and alphabet != "d":
        drawn[1] = "7"
    return "".join(drawn)
