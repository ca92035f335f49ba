"""One small broker per system over an in-memory log: for demos, tests and first tries, never for production.

What all of them share lives here: ``server`` (TCP, threads, faults), ``topiclog`` (entries), ``ranges``.
"""
