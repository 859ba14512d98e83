"""The bus, the token flow and a rollout around an engine: their own cost, against other frameworks'."""
