"""Recognises tokens by their form, as published by their issuers, whatever surrounds them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

# Where the forms are published. The patterns were written for this module.
_GITHUB = "GitHub docs, supported secret scanning patterns"
_GITLEAKS = "gitleaks, config/gitleaks.toml"
_TRUFFLEHOG = "trufflehog, pkg/detectors"
_GITLAB = "GitLab docs, token overview: token prefixes"
_AWS = "AWS IAM user guide, unique identifiers; Amazon Bedrock user guide, API keys"
_GOOGLE = "Google Cloud docs, authentication; " + _GITHUB
_AZURE = "Microsoft Purview, sensitive information types: credentials"
_SLACK = "Slack API docs, token types"
_VAULT = "HashiCorp docs, Vault tokens: prefixes"
_ISSUER = "the issuer's documentation of its keys"
_RFC = "RFC 7468 (PEM), RFC 7519 (JWT), RFC 6750 (bearer), RFC 7617 (basic)"


class Shape(NamedTuple):
    """One kind of token: each contains one of the `marks`, so that a text without them need not be searched."""

    kind: str
    marks: tuple[str, ...]
    pattern: str
    source: str


_HEX = "[0-9a-f]"
_WORD = "[A-Za-z0-9]"
_URL64 = r"[\w-]"

SHAPES: tuple[Shape, ...] = (
    # Models and training
    Shape("Hugging Face user token", ("hf_",), rf"hf_{_WORD}{{30,}}", _GITLEAKS),
    Shape("Hugging Face organisation token", ("api_org_",), rf"api_org_{_WORD}{{30,}}", _GITLEAKS),
    Shape("key of OpenAI, Anthropic, OpenRouter, DeepSeek and others", ("sk-",), rf"(?<![/.-])sk-(?={_URL64}*\d){_URL64}{{12,}}", _GITHUB),
    Shape("Weights & Biases API key", ("wandb_v",), rf"wandb_v\d+_{_URL64}{{20,}}", _ISSUER),
    Shape("Groq API key", ("gsk_",), rf"gsk_{_WORD}{{20,}}", _GITHUB),
    Shape("xAI API key", ("xai-",), rf"xai-{_WORD}{{20,}}", _GITHUB),
    Shape("Perplexity API key", ("pplx-",), rf"pplx-{_WORD}{{20,}}", _GITLEAKS),
    Shape("Replicate API token", ("r8_",), rf"r8_{_WORD}{{20,}}", _GITHUB),
    Shape("NVIDIA API key", ("nvapi-",), rf"nvapi-{_URL64}{{12,}}", _TRUFFLEHOG),
    Shape("Fireworks API key", ("fw_",), rf"fw_(?=\w*\d){_WORD}{{20,}}", _GITHUB),
    Shape("Together API key", ("tgp_v1_",), rf"tgp_v1_{_URL64}{{20,}}", _ISSUER),
    Shape("Cerebras API key", ("csk-",), rf"csk-{_WORD}{{20,}}", _ISSUER),
    Shape("Pinecone API key", ("pcsk_",), rf"pcsk_{_WORD}{{2,}}_{_WORD}{{20,}}", _GITHUB),
    Shape("LangSmith API key", ("lsv2_",), rf"lsv2_(?:pt|sk)_{_HEX}{{20,}}(?:_{_HEX}+)?", _GITHUB),
    Shape("ModelScope token", ("ms-",), rf"ms-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}", _ISSUER),
    Shape("Prefect API key", ("pnu_", "pnb_"), rf"pn[ub]_{_WORD}{{20,}}", _GITLEAKS),
    Shape("Infracost API key", ("ico-",), rf"ico-(?=\w*\d){_WORD}{{32}}", _GITLEAKS),
    # Code and packages
    Shape("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"gh[pousr]_{_WORD}{{12,}}", _GITHUB),
    Shape("GitHub fine-grained token", ("github_pat_",), r"github_pat_\w{12,}", _GITHUB),
    Shape("GitLab token", ("gl",), rf"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|agent|oas|imt|ffct|wt)-{_URL64}{{12,}}", _GITLAB),
    Shape("GitLab runner registration token", ("GR1348941",), rf"GR1348941{_URL64}{{12,}}", _GITLAB),
    Shape("Bitbucket app password", ("ATBB",), rf"ATBB{_WORD}{{20,}}", _GITHUB),
    Shape("Atlassian API token", ("ATATT3", "ATCTT3"), rf"AT[AC]TT3{_URL64}{{20,}}=?{_WORD}*", _GITLEAKS),
    Shape("PyPI token", ("pypi-",), rf"pypi-(?={_URL64}*\d){_URL64}{{16,}}", _GITHUB),
    Shape("npm token", ("npm_",), rf"npm_{_WORD}{{30,}}", _GITHUB),
    Shape("RubyGems API key", ("rubygems_",), rf"rubygems_{_HEX}{{20,}}", _GITHUB),
    Shape("NuGet API key", ("oy2",), r"oy2[a-z0-9]{43}", _GITHUB),
    Shape("crates.io token", ("cio",), rf"cio{_WORD}{{32}}", _GITHUB),
    Shape("Clojars deploy token", ("CLOJARS_",), rf"CLOJARS_{_WORD}{{20,}}", _GITLEAKS),
    Shape("Docker token", ("dckr_",), rf"dckr_(?:pat|oat)_{_URL64}{{12,}}", _GITHUB),
    Shape("JFrog API key", ("AKCp",), rf"AKCp{_WORD}{{60,}}", _GITLEAKS),
    Shape("JFrog reference token", ("cmVmd",), rf"cmVmd{_WORD}{{50,}}", _GITHUB),
    Shape("Sourcegraph token", ("sgp_",), rf"sgp_(?:{_WORD}+_)?{_HEX}{{20,}}", _GITLEAKS),
    Shape("SonarQube token", ("sqp_", "squ_", "sqa_"), rf"sq[pua]_{_HEX}{{20,}}", _GITHUB),
    Shape("CircleCI token", ("CCIPAT_", "CCIPRJ_"), rf"CCIP(?:AT|RJ)_{_WORD}+_{_HEX}{{20,}}", _GITHUB),
    Shape("Buildkite token", ("bkua_",), rf"bkua_{_HEX}{{20,}}", _GITHUB),
    Shape("Postman API key", ("PMAK-",), rf"PMAK-{_HEX}{{20,}}-{_HEX}{{20,}}", _GITLEAKS),
    Shape("ReadMe API key", ("rdme_",), r"rdme_[a-z0-9]{20,}", _GITLEAKS),
    # Clouds and hosting
    Shape("AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}", _AWS),
    Shape("Amazon Bedrock key", ("ABSK", "bedrock-api-key-"), r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/]{20,}={0,2}", _AWS),
    Shape("Google API key", ("AIza",), rf"AIza{_URL64}{{30,}}", _GOOGLE),
    Shape("Google OAuth access token", ("ya29.",), rf"ya29\.{_URL64}{{12,}}(?:\.{_URL64}+)*", _GOOGLE),
    Shape("Google OAuth client secret", ("GOCSPX-",), rf"GOCSPX-{_URL64}{{12,}}", _GOOGLE),
    Shape("Google OAuth refresh token", ("1//0",), rf"1//0{_URL64}{{20,}}", _GOOGLE),
    Shape("Azure client secret", ("Q~",), r"[\w.~-]{3}\dQ~[\w.~-]{31,34}", _AZURE),
    Shape("Azure storage or service bus key", ("==",), r"[A-Za-z0-9+/]{86}==", _AZURE),
    Shape("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), rf"do[opr]_v1_{_HEX}{{20,}}", _GITHUB),
    Shape("Heroku API key", ("HRKU-",), rf"HRKU-{_URL64}{{20,}}", _GITHUB),
    Shape("Cloudflare origin CA key", ("v1.0-",), rf"v1\.0-{_HEX}{{24}}-{_HEX}{{100,}}", _GITLEAKS),
    Shape("Alibaba Cloud access key", ("LTAI",), rf"LTAI(?=\w*\d){_WORD}{{12,}}", _GITHUB),
    Shape("Tencent Cloud secret id", ("AKID",), rf"AKID{_WORD}{{20,}}", _GITHUB),
    Shape("Volcengine access key", ("AKLT",), r"AKLT[\w-]{20,}={0,2}", _GITHUB),
    Shape("Baidu Cloud key", ("bce-v3/",), rf"bce-v3/[\w-]+/{_HEX}{{20,}}", _ISSUER),
    Shape("Yandex Cloud key", ("AQVN",), rf"AQVN{_URL64}{{30,}}", _GITLEAKS),
    Shape("Fly.io token", ("fm1", "fm2_", "fo1_"), r"(?:fm1[ar]_|fm2_|fo1_)[\w+/-]{20,}={0,3}", _GITLEAKS),
    Shape("Netlify token", ("nfp_",), rf"nfp_{_WORD}{{20,}}", _GITHUB),
    Shape("Vercel storage token", ("vercel_blob_rw_",), rf"vercel_blob_rw_{_WORD}+_{_WORD}{{12,}}", _GITHUB),
    Shape("Scalingo token", ("tk-us-",), rf"tk-us-{_URL64}{{20,}}", _GITLEAKS),
    Shape("Tailscale key", ("tskey-",), rf"tskey-[a-z]+-{_WORD}+-{_WORD}{{12,}}", _GITHUB),
    Shape("Databricks token", ("dapi", "dkea", "dose", "dsapi"), rf"(?:dapi|dkea|dose|dsapi){_HEX}{{32}}(?:-\d)?", _GITHUB),
    Shape("PlanetScale credential", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[\w.-]{20,}", _GITLEAKS),
    Shape("Supabase key", ("sbp_", "sb_secret_"), rf"(?:sbp_|sb_secret_){_URL64}{{20,}}", _GITHUB),
    Shape("Neon or Turso style database password", ("npg_",), rf"npg_{_WORD}{{12,}}", _ISSUER),
    # Secrets managers and infrastructure
    Shape("Vault token", ("hv",), rf"hv[sbr]\.{_URL64}{{12,}}", _VAULT),
    Shape("Terraform Cloud token", (".atlasv1.",), rf"{_WORD}{{10,}}\.atlasv1\.{_URL64}{{20,}}", _GITLEAKS),
    Shape("Doppler token", ("dp.",), rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]+\.)?{_WORD}{{20,}}", _GITHUB),
    Shape("Pulumi token", ("pul-",), rf"pul-{_HEX}{{20,}}", _GITHUB),
    Shape("age secret key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{20,}", _GITLEAKS),
    Shape("1Password service account token", ("ops_eyJ",), rf"ops_eyJ{_URL64}{{20,}}={{0,2}}", _GITLEAKS),
    Shape("Okta API token", ("SSWS ",), rf"SSWS\s+{_URL64}{{20,}}", _ISSUER),
    Shape("LaunchDarkly key", ("api-", "sdk-", "mob-"), rf"(?:api|sdk|mob)-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}", _GITHUB),
    Shape("JSON web token", ("eyJ",), r"eyJ[\w-]{8,}(?:\.[\w-]{4,}){1,4}", _RFC),
    Shape("Neptune API token, or another one in base64 of JSON", ("eyJhcGlf",), r"eyJhcGlf[A-Za-z0-9+/_-]{20,}={0,2}", _ISSUER),
    # Monitoring
    Shape("Grafana token", ("glsa_", "glc_"), r"gl(?:sa|c)_[\w+/-]{20,}={0,2}", _GITHUB),
    Shape("Grafana API key", ("eyJrIjoi",), r"eyJrIjoi[A-Za-z0-9+/]{20,}={0,2}", _GITLEAKS),
    Shape("New Relic key", ("NR",), rf"NR(?:AK|JS|II|RA|AA)-{_URL64}{{19,}}", _GITHUB),
    Shape("Sentry token", ("sntry",), r"sntry[sua]_[\w+/=-]{20,}", _GITHUB),
    Shape("Dynatrace token", ("dt0",), r"dt0[a-z]\d\d\.[A-Z0-9]{8,}\.[A-Z0-9]{20,}", _GITHUB),
    # Messages and mail
    Shape("Slack token", ("xox", "xapp-", "xwfp-"), rf"(?:xox[a-z](?:\.xox[a-z])?|xapp|xwfp)-{_URL64}{{10,}}", _SLACK),
    Shape("Telegram bot token", (":AA",), rf"\d{{6,12}}:AA{_URL64}{{30,}}", _TRUFFLEHOG),
    Shape("Discord bot token", (".",), r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", _GITHUB),
    Shape("SendGrid API key", ("SG.",), rf"SG\.{_URL64}{{12,}}\.{_URL64}{{12,}}", _GITHUB),
    Shape("Mailgun key", ("key-", "pubkey-"), rf"(?:pub)?key-{_HEX}{{32}}", _GITLEAKS),
    Shape("Mailchimp key", ("-us",), rf"{_HEX}{{32}}-us\d{{1,2}}", _GITHUB),
    Shape("Twilio API key", ("SK",), rf"SK{_HEX}{{32}}", _GITLEAKS),
    Shape("Brevo key", ("xkeysib-", "xsmtpsib-"), rf"x(?:keysib|smtpsib)-{_HEX}{{20,}}(?:-{_WORD}+)?", _GITHUB),
    # Money
    Shape("Stripe key", ("_live_", "_test_"), rf"[srp]k_(?:live|test)_{_WORD}{{10,}}", _GITHUB),
    Shape("Stripe webhook secret", ("whsec_",), r"whsec_[A-Za-z0-9+/]{20,}={0,2}", _GITHUB),
    Shape("Square token", ("sq0", "EAAA"), rf"(?:sq0[a-z]{{3}}-{_URL64}{{20,}}|EAAA{_URL64}{{50,}})", _GITHUB),
    Shape("Shopify token", ("shp",), rf"shp(?:at|ca|pa|ss)_{_WORD}{{20,}}", _GITHUB),
    Shape("Flutterwave key", ("FLWSECK",), rf"FLWSECK(?:_TEST)?-{_WORD}{{12,}}(?:-X)?", _GITHUB),
    Shape("EasyPost key", ("EZAK", "EZTK"), rf"EZ[AT]K{_WORD}{{40,}}", _GITHUB),
    Shape("Shippo token", ("shippo_",), rf"shippo_(?:live|test)_{_HEX}{{20,}}", _GITHUB),
    # Documents and work
    Shape("Notion token", ("secret_", "ntn_"), rf"(?:secret_{_WORD}{{40,}}|ntn_{_WORD}{{20,}})", _GITHUB),
    Shape("Linear key", ("lin_",), rf"lin_(?:api|oauth)_{_WORD}{{20,}}", _GITHUB),
    Shape("Figma token", ("figd_", "figoh_", "figor_"), rf"fig(?:d|oh|or)_{_URL64}{{20,}}", _GITHUB),
    Shape("Airtable token", ("pat",), rf"pat{_WORD}{{14}}\.{_HEX}{{40,}}", _GITHUB),
    Shape("Asana token", ("1/", "2/"), rf"[12]/\d{{10,}}(?:/\d{{10,}})?:{_WORD}{{20,}}", _GITHUB),
    Shape("Contentful token", ("CFPAT-",), rf"CFPAT-{_URL64}{{20,}}", _GITHUB),
    Shape("Typeform token", ("tfp_",), r"tfp_[\w.=-]{20,}", _GITLEAKS),
    Shape("Frame.io token", ("fio-u-",), rf"fio-u-{_URL64}{{20,}}", _GITLEAKS),
    Shape("Adobe client secret", ("p8e-",), rf"p8e-{_WORD}{{20,}}", _GITLEAKS),
    Shape("Mapbox secret token", ("sk.eyJ",), r"sk\.eyJ[\w-]{10,}\.[\w-]{10,}", _GITHUB),
    Shape("Facebook token", ("EAA",), rf"EAA[A-Z](?={_WORD}*\d){_WORD}{{40,}}", _GITLEAKS),
)  # fmt: skip
"""All kinds. `tests/toolkit/system/test_token_shapes.py` has an example of each."""

_BEFORE = r"(?<![A-Za-z0-9_])"
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?s:.*?)-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|[^\n]*)"
)
# A line of a key's body, for logs that show it without the key's first line.
_BODY_OF_KEY = re.compile(
    r"^([ \t\r\f\v+-]*)(?=[A-Za-z0-9+/]{60,76}={0,2}\s*$)"  # first, because the next pattern matches up to the end of the line
    r"(?!(?:[^/\n]*/){5})(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])(?=\S*[+/])[A-Za-z0-9+/]{60,76}={0,2}",
    re.MULTILINE,
)
_SCHEME = re.compile(
    r"\b(bearer\s+(?=\S*\d|\S{20})|basic\s+(?=[A-Za-z0-9+/]*[\d=]))[\w+/=.~-]{6,}", re.IGNORECASE
)
# Addresses to which anyone who knows them can post.
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|/open-apis/bot/v2/hook/"
    r"|webhook\.office\.com/|api\.telegram\.org/bot|hooks\.zapier\.com/hooks/catch/|maker\.ifttt\.com/trigger/\w+/with/key/"
    r"|sctapi\.ftqq\.com/|api\.day\.app/|hc-ping\.com/)"
    r"[^\s\"'<>]+"
)
_WEBHOOKS = ("hook", "api.telegram.org/bot", "maker.ifttt.com", "ftqq.com", "day.app", "hc-ping.com")
_MARKED = tuple((mark, shape.pattern) for shape in SHAPES for mark in shape.marks)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when a text first contains a mark of its kind."""
    return re.compile(_BEFORE + pattern)


def without_tokens(text: str, mask: str) -> str:
    """Return the text with the mask in place of each token and private key, and of the secret part of webhooks."""
    if "PRIVATE KEY" in text:
        text = _PEM.sub(lambda key: "\n".join([mask] * (key[0].count("\n") + 1)), text)
    if len(text) >= 60:
        text = _BODY_OF_KEY.sub(rf"\1{mask}", text)
    for contained, pattern in _MARKED:
        if contained in text:
            text = _compiled(pattern).sub(mask, text)
    if any(mark in text for mark in _WEBHOOKS):
        text = _WEBHOOK.sub(rf"\1{mask}", text)
    return _SCHEME.sub(rf"\1{mask}", text)
