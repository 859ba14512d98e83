"""Competitions: who plays whom, what the games say, and how sure one may be of it. Free of torch."""
