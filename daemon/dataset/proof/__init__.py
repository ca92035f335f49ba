"""The checks of ``verify`` and their report."""
