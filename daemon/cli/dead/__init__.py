"""The command ``dead``."""
