"""A language model of 250 kB that llama.cpp loads: one layer of zeros, a token for each byte.

The format is GGUF 3: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CONTEXT = 1 << 17
"""Tokens that a request may have: so many that it takes minutes to generate them."""

_WIDTH = 64
_ALIGNMENT = 32
_GGML_F32 = 0
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_VOCABULARY = (
    ("<unk>", _UNKNOWN),
    ("<s>", _CONTROL),
    ("</s>", _CONTROL),
    *((f"<0x{byte:02X}>", _BYTE) for byte in range(256)),
    ("\u2581", _NORMAL),  # the tokenizer writes a space so, and puts one before each text
)
_TENSORS = {
    "token_embd.weight": (_WIDTH, len(_VOCABULARY)),
    "output_norm.weight": (_WIDTH,),
    "output.weight": (_WIDTH, len(_VOCABULARY)),
    "blk.0.attn_norm.weight": (_WIDTH,),
    "blk.0.ffn_norm.weight": (_WIDTH,),
    **{
        f"blk.0.{name}.weight": (_WIDTH, _WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    },
}


def write_tiny_model(file: Path) -> None:
    """Write the model; all its tokens are equally probable, and so its texts are noise."""
    metadata = [
        _entry("general.architecture", _STRING, _string("llama")),
        _entry("llama.context_length", _UINT32, struct.pack("<I", CONTEXT)),
        _entry("llama.embedding_length", _UINT32, struct.pack("<I", _WIDTH)),
        _entry("llama.block_count", _UINT32, struct.pack("<I", 1)),
        _entry("llama.feed_forward_length", _UINT32, struct.pack("<I", _WIDTH)),
        _entry("llama.attention.head_count", _UINT32, struct.pack("<I", 4)),
        _entry("llama.attention.layer_norm_rms_epsilon", _FLOAT32, struct.pack("<f", 1e-5)),
        _entry("tokenizer.ggml.model", _STRING, _string("llama")),
        _array("tokenizer.ggml.tokens", _STRING, [_string(token) for token, _ in _VOCABULARY]),
        _array("tokenizer.ggml.scores", _FLOAT32, [struct.pack("<f", 0)] * len(_VOCABULARY)),
        _array(
            "tokenizer.ggml.token_type",
            _INT32,
            [struct.pack("<i", kind) for _, kind in _VOCABULARY],
        ),
    ]
    tensors = []
    offset = 0
    for name, shape in _TENSORS.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        tensors.append(_string(name) + sizes + struct.pack("<IQ", _GGML_F32, offset))
        offset = _aligned(offset + 4 * math.prod(shape))
    counts = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    header = b"".join([counts, *metadata, *tensors])
    file.write_bytes(header.ljust(_aligned(len(header)), b"\0") + bytes(offset))


def _entry(key: str, kind: int, value: bytes) -> bytes:
    return _string(key) + struct.pack("<I", kind) + value


def _array(key: str, kind: int, values: Sequence[bytes]) -> bytes:
    return _entry(key, _ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
