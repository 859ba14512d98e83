"""A scenario as an OpenEnv environment that others train on: `mas openenv SCENARIO`.

`game` is one episode with a session in each seat, or one session and a policy in the other seats; `wire` the messages
of OpenEnv's WebSocket; `server` sessions, limits and pages. The package openenv is not needed.
"""
