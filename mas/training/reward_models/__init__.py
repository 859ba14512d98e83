"""Rewards that are learned: models that say what each turn of a trajectory is paid."""
