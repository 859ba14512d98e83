"""Probes of orchestrators: small graphs with a trap each, run in mas and in other frameworks, without any model.

What is imported here and in `systems` before a framework itself needs nothing but Python's standard library, so that
every framework can be probed in an environment of its own, without mas's dependencies.
"""
