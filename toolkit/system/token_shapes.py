"""Recognises tokens by their form, as published by their issuers, whatever surrounds them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

# Where the forms are published, by the word behind each. The patterns were written for this module.
# github: GitHub docs, supported secret scanning patterns
# gitleaks: gitleaks, config/gitleaks.toml
# trufflehog: trufflehog, pkg/detectors
# gitlab: GitLab docs, token overview: token prefixes
# aws: AWS IAM user guide, unique identifiers; Amazon Bedrock user guide, API keys
# google: Google Cloud docs, authentication; github
# azure: Microsoft Purview, sensitive information types: credentials
# slack: Slack API docs, token types
# vault: HashiCorp docs, Vault tokens: prefixes
# issuer: the issuer's documentation of its keys
# rfc: RFC 7468 (PEM), RFC 7519 (JWT), RFC 6750 (bearer), RFC 7617 (basic)


class Shape(NamedTuple):
    """One kind of token: each has one of the `marks`, so text without them needs no search."""

    kind: str
    marks: tuple[str, ...]
    pattern: str


_HEX = "[0-9a-f]"
_WORD = "[A-Za-z0-9]"
_URL64 = r"[\w-]"

SHAPES: tuple[Shape, ...] = (
    # Models and training
    Shape("Hugging Face user token", ("hf_",), rf"hf_{_WORD}{{30,}}"),  # gitleaks
    Shape("Hugging Face organisation token", ("api_org_",), rf"api_org_{_WORD}{{30,}}"),  # gitleaks
    Shape(
        "key of OpenAI, Anthropic, OpenRouter, DeepSeek and others",
        ("sk-",),
        rf"(?<![/.-])sk-(?={_URL64}{{0,200}}\d){_URL64}{{12,}}",
    ),  # github
    Shape("Weights & Biases API key", ("wandb_v",), rf"wandb_v\d+_{_URL64}{{20,}}"),  # issuer
    Shape("Groq API key", ("gsk_",), rf"gsk_{_WORD}{{20,}}"),  # github
    Shape("xAI API key", ("xai-",), rf"xai-{_WORD}{{20,}}"),  # github
    Shape("Perplexity API key", ("pplx-",), rf"pplx-{_WORD}{{20,}}"),  # gitleaks
    Shape("Replicate API token", ("r8_",), rf"r8_{_WORD}{{20,}}"),  # github
    Shape("NVIDIA API key", ("nvapi-",), rf"nvapi-{_URL64}{{12,}}"),  # trufflehog
    Shape("Fireworks API key", ("fw_",), rf"fw_(?=\w*\d){_WORD}{{20,}}"),  # github
    Shape("Together API key", ("tgp_v1_",), rf"tgp_v1_{_URL64}{{20,}}"),  # issuer
    Shape("Cerebras API key", ("csk-",), rf"csk-{_WORD}{{20,}}"),  # issuer
    Shape("Pinecone API key", ("pcsk_",), rf"pcsk_{_WORD}{{2,}}_{_WORD}{{20,}}"),  # github
    Shape("LangSmith API key", ("lsv2_",), rf"lsv2_(?:pt|sk)_{_HEX}{{20,}}(?:_{_HEX}+)?"),  # github
    Shape("ModelScope token", ("ms-",), rf"ms-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"),  # issuer
    Shape("Prefect API key", ("pnu_", "pnb_"), rf"pn[ub]_{_WORD}{{20,}}"),  # gitleaks
    Shape("Infracost API key", ("ico-",), rf"ico-(?=\w*\d){_WORD}{{32}}"),  # gitleaks
    Shape(
        "Tavily API key", ("tvly-",), rf"tvly-(?:dev-|prod-)?(?={_URL64}{{0,200}}\d){_URL64}{{20,}}"
    ),  # issuer
    Shape("E2B API key", ("e2b_",), rf"e2b_{_HEX}{{40,}}"),  # issuer
    Shape("RunPod API key", ("rpa_",), rf"rpa_{_WORD}{{30,}}"),  # issuer
    Shape("Kaggle API token", ("KGAT_",), rf"KGAT_{_HEX}{{32}}"),  # issuer
    Shape("Jina API key", ("jina_",), rf"jina_(?=\w*\d){_WORD}{{40,}}"),  # issuer
    Shape("Vercel AI Gateway key", ("vck_",), rf"vck_(?=\w*\d){_WORD}{{20,}}"),  # issuer
    Shape("PostHog personal API key", ("phx_", "phs_"), rf"ph[xs]_{_WORD}{{40,}}"),  # issuer
    # Code and packages
    Shape("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"gh[pousr]_{_WORD}{{12,}}"),  # github
    Shape("GitHub fine-grained token", ("github_pat_",), r"github_pat_\w{12,}"),  # github
    Shape(
        "GitLab token", ("gl",), rf"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|agent|oas|imt|ffct|wt)-{_URL64}{{12,}}"
    ),  # gitlab
    Shape("GitLab runner registration token", ("GR1348941",), rf"GR1348941{_URL64}{{12,}}"),  # gitlab
    Shape("Bitbucket app password", ("ATBB",), rf"ATBB{_WORD}{{20,}}"),  # github
    Shape("Atlassian API token", ("ATATT3", "ATCTT3"), rf"AT[AC]TT3{_URL64}{{20,}}=?{_WORD}*"),  # gitleaks
    Shape("PyPI token", ("pypi-",), rf"pypi-(?={_URL64}{{0,200}}\d){_URL64}{{16,}}"),  # github
    Shape("npm token", ("npm_",), rf"npm_{_WORD}{{30,}}"),  # github
    Shape("RubyGems API key", ("rubygems_",), rf"rubygems_{_HEX}{{20,}}"),  # github
    Shape("NuGet API key", ("oy2",), r"oy2[a-z0-9]{43}"),  # github
    Shape("crates.io token", ("cio",), rf"cio{_WORD}{{32}}"),  # github
    Shape("Clojars deploy token", ("CLOJARS_",), rf"CLOJARS_{_WORD}{{20,}}"),  # gitleaks
    Shape("Docker token", ("dckr_",), rf"dckr_(?:pat|oat)_{_URL64}{{12,}}"),  # github
    Shape("JFrog API key", ("AKCp",), rf"AKCp{_WORD}{{60,}}"),  # gitleaks
    Shape("JFrog reference token", ("cmVmd",), rf"cmVmd{_WORD}{{50,}}"),  # github
    Shape("Sourcegraph token", ("sgp_",), rf"sgp_(?:{_WORD}+_)?{_HEX}{{20,}}"),  # gitleaks
    Shape("SonarQube token", ("sqp_", "squ_", "sqa_"), rf"sq[pua]_{_HEX}{{20,}}"),  # github
    Shape("CircleCI token", ("CCIPAT_", "CCIPRJ_"), rf"CCIP(?:AT|RJ)_{_WORD}+_{_HEX}{{20,}}"),  # github
    Shape("Buildkite token", ("bkua_",), rf"bkua_{_HEX}{{20,}}"),  # github
    Shape("Postman API key", ("PMAK-",), rf"PMAK-{_HEX}{{20,}}-{_HEX}{{20,}}"),  # gitleaks
    Shape("ReadMe API key", ("rdme_",), r"rdme_[a-z0-9]{20,}"),  # gitleaks
    # Clouds and hosting
    Shape("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}"),  # aws
    Shape(
        "Amazon Bedrock key",
        ("ABSK", "bedrock-api-key-"),
        r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/]{20,}={0,2}",
    ),  # aws
    Shape("Google API key", ("AIza",), rf"AIza{_URL64}{{30,}}"),  # google
    Shape("Google OAuth access token", ("ya29.",), rf"ya29\.{_URL64}{{12,}}(?:\.{_URL64}+)*"),  # google
    Shape("Google OAuth client secret", ("GOCSPX-",), rf"GOCSPX-{_URL64}{{12,}}"),  # google
    Shape("Google OAuth refresh token", ("1//0",), rf"1//0{_URL64}{{20,}}"),  # google
    Shape("Azure client secret", ("Q~",), r"[\w.~-]{3}\dQ~[\w.~-]{31,34}"),  # azure
    Shape("Azure storage or service bus key", ("==",), r"[A-Za-z0-9+/]{86}=="),  # azure
    Shape("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), rf"do[opr]_v1_{_HEX}{{20,}}"),  # github
    Shape("Heroku API key", ("HRKU-",), rf"HRKU-{_URL64}{{20,}}"),  # github
    Shape("Cloudflare origin CA key", ("v1.0-",), rf"v1\.0-{_HEX}{{24}}-{_HEX}{{100,}}"),  # gitleaks
    Shape("Alibaba Cloud access key", ("LTAI",), rf"LTAI(?=\w*\d){_WORD}{{12,}}"),  # github
    Shape("Tencent Cloud secret id", ("AKID",), rf"AKID{_WORD}{{20,}}"),  # github
    Shape("Volcengine access key", ("AKLT",), r"AKLT[\w-]{20,}={0,2}"),  # github
    Shape("Baidu Cloud key", ("bce-v3/",), rf"bce-v3/[\w-]+/{_HEX}{{20,}}"),  # issuer
    Shape("Yandex Cloud key", ("AQVN",), rf"AQVN{_URL64}{{30,}}"),  # gitleaks
    Shape("Fly.io token", ("fm1", "fm2_", "fo1_"), r"(?:fm1[ar]_|fm2_|fo1_)[\w+/-]{20,}={0,3}"),  # gitleaks
    Shape("Netlify token", ("nfp_",), rf"nfp_{_WORD}{{20,}}"),  # github
    Shape("Vercel storage token", ("vercel_blob_rw_",), rf"vercel_blob_rw_{_WORD}+_{_WORD}{{12,}}"),  # github
    Shape("Scalingo token", ("tk-us-",), rf"tk-us-{_URL64}{{20,}}"),  # gitleaks
    Shape("Tailscale key", ("tskey-",), rf"tskey-[a-z]+-{_WORD}+-{_WORD}{{12,}}"),  # github
    Shape(
        "Databricks token",
        ("dapi", "dkea", "dose", "dsapi"),
        rf"(?:dapi|dkea|dose|dsapi){_HEX}{{32}}(?:-\d)?",
    ),  # github
    Shape("PlanetScale credential", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[\w.-]{20,}"),  # gitleaks
    Shape("Supabase key", ("sbp_", "sb_secret_"), rf"(?:sbp_|sb_secret_){_URL64}{{20,}}"),  # github
    Shape("Neon or Turso style database password", ("npg_",), rf"npg_{_WORD}{{12,}}"),  # issuer
    # Secrets managers and infrastructure
    Shape("Vault token", ("hv",), rf"hv[sbr]\.{_URL64}{{12,}}"),  # vault
    Shape("Terraform Cloud token", (".atlasv1.",), rf"{_WORD}{{10,}}\.atlasv1\.{_URL64}{{20,}}"),  # gitleaks
    Shape(
        "Doppler token", ("dp.",), rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]+\.)?{_WORD}{{20,}}"
    ),  # github
    Shape("Pulumi token", ("pul-",), rf"pul-{_HEX}{{20,}}"),  # github
    Shape("age secret key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),  # gitleaks
    Shape("1Password service account token", ("ops_eyJ",), rf"ops_eyJ{_URL64}{{20,}}={{0,2}}"),  # gitleaks
    Shape("Okta API token", ("SSWS ",), rf"SSWS\s+{_URL64}{{20,}}"),  # issuer
    Shape(
        "LaunchDarkly key",
        ("api-", "sdk-", "mob-"),
        rf"(?:api|sdk|mob)-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    ),  # github
    Shape("JSON web token", ("eyJ",), r"eyJ[\w-]{8,2000}(?:\.[\w-]{4,}){1,4}"),  # rfc
    Shape(
        "Neptune API token, or another one in base64 of JSON",
        ("eyJhcGlf",),
        r"eyJhcGlf[A-Za-z0-9+/_-]{20,}={0,2}",
    ),  # issuer
    # Monitoring
    Shape("Grafana token", ("glsa_", "glc_"), r"gl(?:sa|c)_[\w+/-]{20,}={0,2}"),  # github
    Shape("Grafana API key", ("eyJrIjoi",), r"eyJrIjoi[A-Za-z0-9+/]{20,}={0,2}"),  # gitleaks
    Shape("New Relic key", ("NR",), rf"NR(?:AK|JS|II|RA|AA)-{_URL64}{{19,}}"),  # github
    Shape("Sentry token", ("sntry",), r"sntry[sua]_[\w+/=-]{20,}"),  # github
    Shape("Dynatrace token", ("dt0",), r"dt0[a-z]\d\d\.[A-Z0-9]{8,}\.[A-Z0-9]{20,}"),  # github
    # Messages and mail
    Shape(
        "Slack token", ("xox", "xapp-", "xwfp-"), rf"(?:xox[a-z](?:\.xox[a-z])?|xapp|xwfp)-{_URL64}{{10,}}"
    ),  # slack
    Shape("Telegram bot token", (":AA",), rf"\d{{6,12}}:AA{_URL64}{{30,}}"),  # trufflehog
    Shape("Discord bot token", (".",), r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}"),  # github
    Shape("SendGrid API key", ("SG.",), rf"SG\.{_URL64}{{12,}}\.{_URL64}{{12,}}"),  # github
    Shape("Mailgun key", ("key-", "pubkey-"), rf"(?:pub)?key-{_HEX}{{32}}"),  # gitleaks
    Shape("Mailchimp key", ("-us",), rf"{_HEX}{{32}}-us\d{{1,2}}"),  # github
    Shape("Twilio API key", ("SK",), rf"SK{_HEX}{{32}}"),  # gitleaks
    Shape(
        "Brevo key", ("xkeysib-", "xsmtpsib-"), rf"x(?:keysib|smtpsib)-{_HEX}{{20,}}(?:-{_WORD}+)?"
    ),  # github
    # Money
    Shape("Stripe key", ("_live_", "_test_"), rf"[srp]k_(?:live|test)_{_WORD}{{10,}}"),  # github
    Shape("Stripe webhook secret", ("whsec_",), r"whsec_[A-Za-z0-9+/]{20,}={0,2}"),  # github
    Shape(
        "Square token", ("sq0", "EAAA"), rf"(?:sq0[a-z]{{3}}-{_URL64}{{20,}}|EAAA{_URL64}{{50,}})"
    ),  # github
    Shape("Shopify token", ("shp",), rf"shp(?:at|ca|pa|ss)_{_WORD}{{20,}}"),  # github
    Shape("Flutterwave key", ("FLWSECK",), rf"FLWSECK(?:_TEST)?-{_WORD}{{12,}}(?:-X)?"),  # github
    Shape("EasyPost key", ("EZAK", "EZTK"), rf"EZ[AT]K{_WORD}{{40,}}"),  # github
    Shape("Shippo token", ("shippo_",), rf"shippo_(?:live|test)_{_HEX}{{20,}}"),  # github
    # Documents and work
    Shape("Notion token", ("secret_", "ntn_"), rf"(?:secret_{_WORD}{{40,}}|ntn_{_WORD}{{20,}})"),  # github
    Shape("Linear key", ("lin_",), rf"lin_(?:api|oauth)_{_WORD}{{20,}}"),  # github
    Shape("Figma token", ("figd_", "figoh_", "figor_"), rf"fig(?:d|oh|or)_{_URL64}{{20,}}"),  # github
    Shape("Airtable token", ("pat",), rf"pat{_WORD}{{14}}\.{_HEX}{{40,}}"),  # github
    Shape("Asana token", ("1/", "2/"), rf"[12]/\d{{10,}}(?:/\d{{10,}})?:{_WORD}{{20,}}"),  # github
    Shape("Contentful token", ("CFPAT-",), rf"CFPAT-{_URL64}{{20,}}"),  # github
    Shape("Typeform token", ("tfp_",), r"tfp_[\w.=-]{20,}"),  # gitleaks
    Shape("Frame.io token", ("fio-u-",), rf"fio-u-{_URL64}{{20,}}"),  # gitleaks
    Shape("Adobe client secret", ("p8e-",), rf"p8e-{_WORD}{{20,}}"),  # gitleaks
    Shape("Mapbox secret token", ("sk.eyJ",), r"sk\.eyJ[\w-]{10,}\.[\w-]{10,}"),  # github
    Shape("Facebook token", ("EAA",), rf"EAA[A-Z](?={_WORD}*\d){_WORD}{{40,}}"),  # gitleaks
)
"""All kinds. `tests/toolkit/system/test_token_shapes.py` has an example of each."""

_BEFORE = r"(?<![A-Za-z0-9_])"
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?s:(?:(?!-----BEGIN ).)*?)-----END "
    r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|[^\n]*(?:\n(?:[^\n]{0,200}[ \t]|[ \t]*)[A-Za-z0-9+/=]{40,76}"
    r"[ \t\r]*(?=\n|\Z))*)|Private-Lines:[ \t]*\d+[ \t\r]*(?:\n[ \t]*[A-Za-z0-9+/=]+)+"  # of PuTTY
)
# A line of a key's body, for logs that show it without the key's first line.
_BODY_OF_KEY = re.compile(
    # First, because the next pattern matches up to the end of the line.
    r"^([ \t\r\f\v+-]*)(?=[A-Za-z0-9+/]{60,76}={0,2}\s*$)"
    r"(?!(?:[^/\n]*/){5})(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])(?=\S*[+/])[A-Za-z0-9+/]{60,76}={0,2}",
    re.MULTILINE,
)
_SCHEME = re.compile(
    r"\b(bearer\s+(?=\S*\d|\S{20})|basic\s+(?=[A-Za-z0-9+/]*[\d=]))[\w+/=.~-]{6,}", re.IGNORECASE
)
# Addresses to which anyone who knows them can post.
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/"
    r"|/open-apis/bot/v2/hook/|webhook\.office\.com/|api\.telegram\.org/bot"
    r"|hooks\.zapier\.com/hooks/catch/|maker\.ifttt\.com/trigger/\w+/with/key/)[^\s\"'<>]+"
)
_WEBHOOKS = ("hook", "api.telegram.org/bot", "maker.ifttt.com")
_MARKED = tuple((mark, shape.pattern) for shape in SHAPES for mark in shape.marks)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when a text first contains a mark of its kind."""
    return re.compile(_BEFORE + pattern)


def without_keys(text: str, mask: str) -> str:
    """Return the text with the mask in place of each line of a private key."""
    if "PRIVATE KEY" not in text and "PuTTY-User-Key-File-" not in text:
        return text
    return _PEM.sub(lambda key: "\n".join([mask] * (key[0].count("\n") + 1)), text)


def without_tokens(text: str, mask: str) -> str:
    """Return the text with the mask in place of each token, private key, and webhook's secret part."""
    text = without_keys(text, mask)
    if len(text) >= 60:
        text = _BODY_OF_KEY.sub(rf"\1{mask}", text)
    for contained, pattern in _MARKED:
        if contained in text:
            text = _compiled(pattern).sub(mask, text)
    if any(mark in text for mark in _WEBHOOKS):
        text = _WEBHOOK.sub(rf"\1{mask}", text)
    return _SCHEME.sub(rf"\1{mask}", text)
