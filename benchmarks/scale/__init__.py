"""`mas bench scale`: what rollout workers cost beside one process, and how they scale."""
