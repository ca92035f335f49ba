"""Signals that arrived before there was anything to handle them."""

held: list[int] = []
"""Their numbers in the order of their arrival, from the start of the command ``run`` on. Taken out by the handler."""
