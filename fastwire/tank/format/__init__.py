"""TANK's wire format: messages and error codes."""
