"""The command ``produce``."""
