"""TANK's protocol: messages and connections."""
