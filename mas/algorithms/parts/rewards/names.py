"""Names of reward terms as turns hold them: `team.NAME`, `own.NAME` and these."""

TEAM, OWN = "team.", "own."
FAILURE = "own.failure"
OUTCOME = "outcome"
"""Whether an episode succeeded; of a candidate of a full tree the share of won episodes below it. No team's and no own
term: only `reward.source=outcome` counts it."""
MODEL = "model"
"""What a reward model pays: a term that no reward counts, or an own term of this name."""
