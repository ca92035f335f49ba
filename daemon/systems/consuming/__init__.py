"""Consumers for programs: a source whose records a program acknowledges, for all systems that keep progress."""
