"""A mosquitto broker for a team: its configuration, its passwords and rights, and the process itself."""
