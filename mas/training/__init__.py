"""Makes teams better: sampling, groups, advantages, losses, learner, trainer."""
