"""Embedded brokers over logs in memory, one folder a system: for demos, tests and first tries, never for production.

``base`` is the contract that each of them fulfils, ``server`` the TCP server, ``topiclog`` the log of a partition,
``delayed`` timers and requests that wait.
"""
