"""Writes tiny data and a tiny random model. Runs under the target's interpreter, with its tokenizers and pyarrow.

It is handed over as text, so it needs the standard library and these two only. The model is written as the ones on the
model hub are: that form every release of transformers and vLLM must read, and nothing in it depends on one of them. All
bytes are computed from the names of things, so the same libraries write the same files on every machine. Called with a
token, the folder, and what to write as JSON.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from pathlib import Path
from typing import Any

VOCABULARY = 512
LONGEST = 4096  # tokens
HEADS, PAIRS, WIDTH = 8, 2, 64  # of attention: heads, heads of keys and values, numbers in each
HIDDEN = HEADS * WIDTH
INNER = HIDDEN
LAYERS = 2

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, START, STOP)

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{{ message.content }}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

Shapes = dict[str, tuple[int, ...]]


def sums(count: int, first: int) -> list[tuple[str, str, str]]:
    """Questions, their solutions, and the answers."""
    found = []
    for number in range(first, first + count):
        left, right = 1 + number * 7 % 89, 1 + number * 5 % 83
        question = f"Ann has {left} apples and buys {right} more. How many apples has Ann now?"
        solution = f"Ann has {left} + {right} = {left + right} apples. #### {left + right}"
        found.append((question, solution, str(left + right)))
    return found


def rewarded_rows(
    count: int, first: int, split: str, columns: dict[str, str], source: str
) -> list[dict[str, Any]]:
    """Rows for training with rewards."""
    ask = 'Think step by step and put the answer behind "####".'
    return [
        {
            "data_source": source,
            columns["prompt_key"]: [{"role": "user", "content": f"{question} {ask}"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": split, "index": index, "question": question, "answer": solution},
        }
        for index, (question, solution, answer) in enumerate(sums(count, first))
    ]


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as Parquet."""
    from pyarrow import Table, parquet  # noqa: PLC0415

    parquet.write_table(Table.from_pylist(rows), path)


def write_tokenizer(folder: Path) -> None:
    """Train byte-pair encoding on what the data are made of, and write it as Qwen's tokenizers are."""
    import tokenizers  # noqa: PLC0415
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: PLC0415

    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for entry in sums(200, 0) for text in entry[:2]]
    texts += [
        "system user assistant tool\n",
        'Think step by step and put the answer behind "####".',
        __doc__ or "",
    ]
    made.train_from_iterator(texts, trainer)
    made.add_special_tokens(list(SPECIAL))
    if made.get_vocab_size() != VOCABULARY:
        raise ValueError(f"the tokenizer has {made.get_vocab_size()} tokens instead of {VOCABULARY}")
    made.save(str(folder / "tokenizer.json"))
    made.model.save(str(folder))
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(made.token_to_id(text)): {
                    "content": text,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": True,
                }
                for text in SPECIAL
            },
            "additional_special_tokens": [START, STOP],
            "bos_token": None,
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": STOP,
            "errors": "replace",
            "model_max_length": LONGEST,
            "pad_token": END,
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )


def token(text: str) -> int:
    """The number of a special token: they stand behind all others."""
    return VOCABULARY - len(SPECIAL) + SPECIAL.index(text)


def text_config() -> dict[str, Any]:
    """What config.json says of a Qwen2."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "eos_token_id": token(STOP),
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INNER,
        "max_position_embeddings": LONGEST,
        "max_window_layers": LAYERS,
        "model_type": "qwen2",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": PAIRS,
        "pad_token_id": token(END),
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "sliding_window": LONGEST,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": VOCABULARY,
    }


def text_weights() -> Shapes:
    """The tensors of a Qwen2, by name."""
    found: Shapes = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        found[f"{at}.input_layernorm.weight"] = found[f"{at}.post_attention_layernorm.weight"] = (HIDDEN,)
        for part, width in (("q", HIDDEN), ("k", PAIRS * WIDTH), ("v", PAIRS * WIDTH)):
            found[f"{at}.self_attn.{part}_proj.weight"] = (width, HIDDEN)
            found[f"{at}.self_attn.{part}_proj.bias"] = (width,)
        found[f"{at}.self_attn.o_proj.weight"] = (HIDDEN, HIDDEN)
        found[f"{at}.mlp.gate_proj.weight"] = found[f"{at}.mlp.up_proj.weight"] = (INNER, HIDDEN)
        found[f"{at}.mlp.down_proj.weight"] = (HIDDEN, INNER)
    return found


def bfloat16(number: float) -> bytes:
    """A number that bfloat16 has exactly, in its two bytes."""
    return struct.pack("<f", number)[2:]


# One for each byte, as if it was signed: up to 1/32 away from zero.
SMALL = [bfloat16((byte - 256 * (byte > 127)) / 4096) for byte in range(256)]


def numbers(name: str, shape: tuple[int, ...]) -> bytes:
    """The values of a tensor: ones for the scale of a norm, zeros for what is added, and else random ones."""
    count = math.prod(shape)
    if len(shape) == 1:
        return bfloat16(0.0 if name.endswith("bias") else 1.0) * count
    drawn = random.Random(name).randbytes(count)  # noqa: S311 - nothing secret
    found = bytearray(2 * count)
    found[0::2] = drawn.translate(bytes(pair[0] for pair in SMALL))
    found[1::2] = drawn.translate(bytes(pair[1] for pair in SMALL))
    return bytes(found)


def write_weights(path: Path, shapes: Shapes) -> None:
    """Write tensors in the format safetensors (https://github.com/huggingface/safetensors#format)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(shapes):
        size = 2 * math.prod(shapes[name])
        header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(shapes):
            file.write(numbers(name, shapes[name]))


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write one JSON document as the hub's are."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_model(folder: Path) -> None:
    """Write the model's folder."""
    folder.mkdir()
    write_tokenizer(folder)
    write_json(folder / "config.json", text_config())
    ends = [token(STOP), token(END)]
    write_json(folder / "generation_config.json", {"eos_token_id": ends, "pad_token_id": token(END)})
    write_weights(folder / "model.safetensors", text_weights())


def write(folder: Path, order: dict[str, Any]) -> dict[str, Any]:
    """Write all, or say what is missing or what went wrong."""
    try:
        for split, first in (("train", 0), ("validation", order["rows"])):
            rows = rewarded_rows(order["rows"], first, split, order["columns"], order["source"])
            write_table(folder / f"{split}.parquet", rows)
        write_model(folder / "model")
    except ImportError as error:
        return {"lacks": str(error.name or error)}
    except Exception as error:  # noqa: BLE001 - whatever is wrong with this environment, it is told
        return {"error": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}
    return {"done": True}


if __name__ == "__main__":
    print(f"\n{sys.argv[1]}{json.dumps(write(Path(sys.argv[2]), json.loads(sys.argv[3])))}")
