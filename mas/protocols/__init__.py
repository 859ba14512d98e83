"""Who speaks when: ready-made teams."""
