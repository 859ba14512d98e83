"""`mas bench learner`: the learner's step against others on the same tokens."""
