"""Real brokers, started from what the Maven registry holds, for the tests and for a demo against the real thing."""
