"""Sinks: a dataset, standard output, and plug-ins."""
