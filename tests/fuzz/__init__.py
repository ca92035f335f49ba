"""Fuzzers: `make soak` runs them for minutes, `python -m tests.fuzz.pulsar` for as long as one likes."""
