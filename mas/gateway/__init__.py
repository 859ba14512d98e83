"""Programs of the user's are trained: their calls of models are a team's turns, recorded and compared.

`client` needs nothing but the standard library.
"""
