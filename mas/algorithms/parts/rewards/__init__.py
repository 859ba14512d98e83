"""Reward terms: named, estimated, judged late, or by what others do; and the number that they make. Free of torch."""
