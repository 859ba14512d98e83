"""`mas bench serving`: tokens per second of engines that serve one base with several adapters."""
