"""The tables for sinks: places, catalogs, databases and topics, and the rules between their keys."""
