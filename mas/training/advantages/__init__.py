"""Advantages: pure functions over lists of numbers, free of torch."""
