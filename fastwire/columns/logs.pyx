"""The logs of one pipeline, numbered: what all of its connections and their chunks refer to by index."""

__all__ = ["LogTable"]


cdef class LogTable:
    """Logs and topics by number. Each system's table of slots stands on it."""

    def __cinit__(self, logs=()):
        self.logs = list(logs)
        self.topics = []
        self.topic_index = {}
        self.room = -1

    def limit_rows(self, int64_t rows):
        """Take ``rows`` more rows from all connections together, to the end of the atom, and drop what follows."""
        if rows < 0:
            raise ValueError("rows is negative")
        self.room = rows

    def add_log(self, log):
        """Register ``log`` and return its index."""
        self.logs.append(log)
        return len(self.logs) - 1

    def log(self, int index):
        """The log of an index."""
        return self.logs[index]

    cdef int32_t topic_of(self, log) except -1:
        """The number of the topic of ``log``, a new one if it has none."""
        name = log.topic.encode()
        if name not in self.topic_index:
            self.topic_index[name] = len(self.topics)
            # A new list: chunks that are out keep the one that their rows index.
            self.topics = [*self.topics, name]
        return self.topic_index[name]
