"""A server that speaks the Tinker API: programs of the SDK `tinker` train adapters on a base of mas.

The requests are those of the SDK's own types and of its protocol buffers. What is not there on purpose: billing,
projects, losses that run on the server, and images.
"""
