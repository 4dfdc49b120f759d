"""Renders prompts with the tokenizer's chat template, as transformers does.

Determines whether the template refuses them, and how many tokens they have at least.

Runs under the target's interpreter, with its pyarrow and Jinja. It is passed as text and needs nothing else.
Called with a token and a JSON object: `template`, `names` (its special tokens), `tokenizer` (its file, "" for
none), `limit` (of tokens, 0 for none), `column`, `files`, `retries`: verl may try a refused prompt again,
with an empty message of a user in front (verl/utils/tokenizer/chat_template.py). `alone`: each message of a
row is rendered without the others, as fine-tuning does. Of the prompts' text it prints nothing; of the
template, the message with which it refuses one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MOST_ROWS = 2000
LONGEST = 20_000  # characters of a prompt
SECONDS = 4.0
MOST_MEMORY = 4 * 1024**3  # bytes of this process: Jinja's sandbox limits neither texts nor numbers
_KEEP = {"ByteLevel", "Split", "Sequence", "Digits", "Punctuation"}


class RefusedError(Exception):
    """Raised by the template itself."""


def renderer(template: str, names: dict[str, str]) -> Callable[..., str]:
    """Return what turns messages into text."""
    from datetime import datetime  # noqa: PLC0415

    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class Generation(Extension):
        """The block with which transformers marks what the assistant writes."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja has it

        def parse(self, parser: Any) -> Any:
            parser.stream.skip(1)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: Any) -> None:
        raise RefusedError(str(message))

    def as_json(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # noqa: DTZ005 - as transformers does
    compiled = environment.from_string(template)
    return lambda messages, *, begin=True: compiled.render(
        messages=messages, tools=None, documents=None, add_generation_prompt=begin, **names
    )


def fails_again(render: Callable[..., str], prompt: Any) -> bool:
    """Return whether the template also refuses a prompt behind an empty message.

    Or the empty message itself, which is no text.
    """
    empty = [{"role": "user", "content": [{"type": "text", "text": ""}]}]
    try:
        render(empty, begin=False)
        render([*empty, *prompt])
    except (RefusedError, TypeError):
        return True
    return False


def pre_tokenizers(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a pre-tokenizer and those inside it."""
    yield part
    for inner in part.get("pretokenizers", ()):
        yield from pre_tokenizers(inner)


def vocabulary(path: str) -> set[str] | None:
    """Return the tokens of ASCII characters as text.

    None unless every token certainly stands for the text that it replaces.
    """
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        tokenizer = json.load(file)
    model, normalizer, before = (
        tokenizer["model"],
        tokenizer.get("normalizer"),
        tokenizer.get("pre_tokenizer"),
    )
    parts = list(pre_tokenizers(before or {}))
    added = tokenizer.get("added_tokens") or []
    if (
        model.get("type") != "BPE"
        or (normalizer and normalizer.get("type") != "NFC")
        or not any(part.get("type") == "ByteLevel" for part in parts)
        or any(part.get("type") not in _KEEP or part.get("behavior") == "Removed" for part in parts)
        or any(token.get("lstrip") or token.get("rstrip") for token in added)
        or model.get("continuing_subword_prefix")
        or model.get("end_of_word_suffix")
    ):
        return None
    # GPT-2's alphabet of bytes, of which the others than printable ASCII follow from 256 on.
    alphabet = {256 + code: code for code in range(33)} | {289: 127} | {code: code for code in range(33, 127)}
    texts = (
        "".join(chr(alphabet[ord(sign)]) for sign in token)
        for token in model["vocab"]
        if all(ord(sign) in alphabet for sign in token)
    )
    return {text for text in (*texts, *(token["content"] for token in added)) if text and text.isascii()}


class Counter:
    """Counts the fewest tokens of which a text can consist."""

    def __init__(self, known: set[str]) -> None:
        """Note how long the tokens are that begin with each pair of characters."""
        self.known = known
        self.lengths: dict[str, int] = {}
        for token in known:
            self.lengths[token[:2]] = max(len(token), self.lengths.get(token[:2], 0))

    def fewest(self, text: str) -> int | None:
        """Return the fewest tokens; None if that is unclear."""
        if not text.isascii() or len(text) > LONGEST or not set(text) <= self.known:
            return None
        best = [0] + [len(text) + 1] * len(text)
        for at in range(len(text)):
            count = best[at] + 1
            for end in range(at + 1, min(len(text), at + max(1, self.lengths.get(text[at : at + 2], 1))) + 1):
                if count < best[end] and text[at:end] in self.known:
                    best[end] = count
        return best[-1]


def prompts(files: list[str], column: str) -> Iterator[Any]:
    """Yield the prompts of all files."""
    import pyarrow.parquet  # noqa: PLC0415

    for path in files:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=256, columns=[column]):
            yield from batch.column(0).to_pylist()


def talks(spec: dict[str, Any], render: Callable[..., str], until: float) -> dict[str, Any]:
    """Return the message with which the template refuses what fine-tuning renders.

    It refuses what fine-tuning renders first, or a message of every row, alone; {} if it may not.
    """
    greeting = [{"role": "user", "content": ""}]
    try:
        for messages, begin in ((greeting, False), (greeting * 2, False), (greeting, True)):
            render(messages, begin=begin)
    except RefusedError as error:
        return {"rows": 1, "refused": str(error)[:200], "probed": True}
    rows, found = 0, ""
    for row in prompts(spec["files"], spec["column"]):
        if rows >= MOST_ROWS or time.monotonic() > until:
            break
        rows += 1
        found = next(filter(None, (alone(render, message, retries=spec["retries"]) for message in row)), "")
        if not found:
            return {}
    return {"rows": rows, "refused": found} if found else {}


def alone(render: Callable[..., str], message: Any, *, retries: bool) -> str:
    """Return with which words the template refuses a message without those around it; "" if it takes it."""
    try:
        render([message], begin=False)
    except RefusedError as error:
        return str(error)[:200] if not retries or fails_again(render, [message]) else ""
    return ""


def examined(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the number of rows that were read, and what all of them have in common; nothing else."""
    render = renderer(spec["template"], spec["names"])
    until = time.monotonic() + SECONDS
    if spec.get("alone"):
        return talks(spec, render, until)
    counter, shortest, refused, message, rows = None, None, 0, "", 0
    for prompt in prompts(spec["files"], spec["column"]):
        if rows >= MOST_ROWS or time.monotonic() > until:
            return {"rows": rows, "refused": message, "whole": False} if rows and refused == rows else {}
        rows += 1
        try:
            text = render(prompt)
        except RefusedError as error:
            if spec["retries"] and not fails_again(render, prompt):
                return {}
            refused, message = refused + 1, str(error)[:200]
            continue
        if not spec["limit"] or not spec["tokenizer"]:
            return {}
        if counter is None:
            known = vocabulary(spec["tokenizer"])
            if known is None:
                return {}
            counter = Counter(known)
        fewest = counter.fewest(text)
        if fewest is None or fewest < spec["limit"]:
            return {}
        shortest = fewest if shortest is None else min(shortest, fewest)
    return {
        "rows": rows,
        "whole": True,
        **({"refused": message} if refused == rows else {"shortest": shortest}),
    }


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    token, given = sys.argv[1:3]
    try:
        answer = examined(json.loads(given))
    except Exception:  # noqa: BLE001 - what cannot be rendered is not judged
        answer = {}
    print(f"\n{token}{json.dumps(answer)}")
