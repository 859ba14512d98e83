"""What algorithms are made of: pure functions, each beside its options. Depends on `mas.core` alone."""
