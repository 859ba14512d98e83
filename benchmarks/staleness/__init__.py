"""`mas bench staleness`: what it brings, and costs, to sample while the learner works."""
