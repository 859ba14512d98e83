"""Where the metrics of a run go beside its directory: Weights & Biases, trackio, MLflow, or a user's own class."""
