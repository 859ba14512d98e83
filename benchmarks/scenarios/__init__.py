"""`mas bench scenarios`: what environments cost, and what a rollout in them costs beside its engine."""
