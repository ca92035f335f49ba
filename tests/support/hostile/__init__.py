"""Brokers that break the rules on purpose."""
