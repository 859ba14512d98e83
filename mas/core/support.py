"""The support of a token: the vocabulary's tokens that it could have been, as bytes.

Top-k, top-p, min-p and a grammar all leave a part of the vocabulary to draw from. A policy gradient is right only if
the learner's log-probabilities are of that part, too, before and after the update; so what was left is recorded with
every token. The same rule as the sampling mask kept in the training of DeepSeek-V3.2 (arXiv 2512.02556, Section 3.1).
"""

import zlib

import numpy as np
from numpy.typing import NDArray

WHOLE = b""
"""The support of a token that could have been any."""


def pack_support(mask_V: NDArray[np.bool_]) -> bytes:
    """A mask over the vocabulary, true where a token is possible; `WHOLE` where all are."""
    return WHOLE if mask_V.all() else zlib.compress(np.packbits(mask_V, bitorder="little").tobytes(), 1)


def unpack_support(support: bytes, vocabulary: int) -> NDArray[np.bool_]:
    """The mask of `vocabulary` tokens that was packed.

    Raises:
        ValueError: the bytes are no mask of so many tokens. They may come from another process: no more is unpacked.
    """
    if support == WHOLE:
        return np.ones(vocabulary, dtype=np.bool_)
    size = -(-vocabulary // 8)
    try:
        unpacked = zlib.decompressobj().decompress(support, size + 1)
    except zlib.error as error:
        raise ValueError(f"a support of {len(support)} bytes cannot be read: {error}") from error
    if len(unpacked) != size:
        raise ValueError(f"a support is not of {vocabulary} tokens, but of another number")
    return np.unpackbits(np.frombuffer(unpacked, dtype=np.uint8), count=vocabulary, bitorder="little").view(np.bool_)
