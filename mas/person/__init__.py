"""A person at the terminal plays along: as roles of a team, or in the seats of a game."""
