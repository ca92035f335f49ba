"""The command ``tail``."""
