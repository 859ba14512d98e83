"""A penalty that grows towards the end of the allowed length."""


def overlong_penalty(length: int, *, most: int, cache: int) -> float:
    """0 up to most - cache tokens, then (most - cache - length) / cache, -1 from `most` on.

    Source: DAPO, arXiv 2503.14476, section 3.4, soft over-long punishment.

    Args:
        length: tokens of the completion. most: L_max. cache: L_cache, tokens over which the penalty grows.

    Raises:
        ValueError: the length is negative, or `cache` is not from 1 to `most`.
    """
    if length < 0 or not 1 <= cache <= most:
        raise ValueError(f"length {length} with at most {most} and a cache of {cache}: 0 or more, and 1 to {most}")
    return -min(max(length - (most - cache), 0) / cache, 1.0)
