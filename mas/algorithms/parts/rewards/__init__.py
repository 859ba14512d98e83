"""Reward shaping: from what was judged, counted or estimated to reward terms. Free of torch."""
