"""Trains a tokenizer and writes tables as Parquet.

Runs under the target's interpreter, with its tokenizers and pyarrow.

It is passed as text, so it needs the standard library and these two only. Called with a token, the folder to
write into, and the file that specifies what to write.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any


def write_table(path: Path, rows: list[dict[str, Any]], pictures: str, files: dict[str, bytes]) -> None:
    """Write rows as Parquet; the column `pictures` holds pictures that the package `datasets` decodes.

    The footer declares that, in the form that its old and its new releases read. The rows name pictures in
    `files`.
    """
    from pyarrow import Table, parquet  # noqa: PLC0415

    for row in rows:
        for picture in row.get(pictures, ()):
            picture["bytes"] = files[picture["bytes"]]
    table = Table.from_pylist(rows)
    if pictures in table.column_names:
        features = {"info": {"features": {pictures: [{"_type": "Image"}]}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    parquet.write_table(table, path)


def write_tokenizer(folder: Path, texts: list[str], size: int, special: list[str], plain: list[str]) -> None:
    """Train byte-pair encoding on texts until there are `size` tokens, and write the tokenizer.

    It is written in the form of Qwen's tokenizers.
    """
    from tokenizers import (  # noqa: PLC0415
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(special) - len(plain),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    made.add_tokens([AddedToken(token, normalized=False, special=False) for token in plain])
    if made.get_vocab_size() != size:
        raise ValueError(f"the tokenizer has {made.get_vocab_size()} tokens instead of {size}")
    made.save(str(folder / "tokenizer.json"))
    made.model.save(str(folder))


def write(folder: Path, order: Path) -> dict[str, Any]:
    """Write everything, or return what is missing or failed."""
    try:
        request = json.loads(order.read_text("utf-8"))
        files = {name: base64.b64decode(content) for name, content in request["files"].items()}
        for name, rows in request["tables"].items():
            write_table(folder / name, rows, request["pictures"], files)
        write_tokenizer(folder / request["model"], **request["tokenizer"])
    except ImportError as error:
        return {"lacks": str(error.name or error)}
    except Exception as error:  # noqa: BLE001 - it is reported, whatever is wrong with this environment
        return {"error": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}
    return {"done": True}


if __name__ == "__main__":
    print(f"\n{sys.argv[1]}{json.dumps(write(Path(sys.argv[2]), Path(sys.argv[3])))}")
