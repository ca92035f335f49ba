"""Tests against real brokers, and what they send and compare with."""
