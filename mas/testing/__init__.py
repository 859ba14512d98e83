"""Contract suites and test doubles that ship with mas, so that users can run them on their own parts."""
