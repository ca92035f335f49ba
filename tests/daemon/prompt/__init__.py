ROWS = 100
"""Records in each partition of the topic that the fixture ``broker`` has."""
