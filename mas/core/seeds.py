"""Seeds derived from names, so that no random state is carried from one place to another."""

from hashlib import blake2b

Part = str | int


def derive_seed(*parts: Part) -> int:
    """A 63-bit seed that depends on every part and its position; equal parts give equal seeds on every machine."""
    return int.from_bytes(_hashed(parts).digest(), "big") >> 1


def digest(*parts: Part) -> str:
    """A 16-digit hexadecimal fingerprint of the parts, for keys and identities."""
    return _hashed(parts).hexdigest()


def _hashed(parts: tuple[Part, ...]) -> blake2b:
    text = "\x1f".join([f"{type(part).__name__}:{part}" for part in parts])
    return blake2b(text.encode(), digest_size=8)
