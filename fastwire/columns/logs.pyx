"""The numbered logs of one pipeline; its connections and their chunks refer to logs by index."""

__all__ = ["LogTable"]


cdef class LogTable:
    """Logs and topics by number. The slot table of each system derives from it."""

    def __cinit__(self, logs=()):
        self.logs = list(logs)
        self.topics = []
        self.topic_index = {}
        self.room = -1

    def limit_rows(self, int64_t rows):
        """Limit all connections together to ``rows`` more rows, to the end of the entry, and drop later ones.

        Raises ValueError for a negative number.
        """
        if rows < 0:
            raise ValueError("rows is negative")
        self.room = rows

    def add_log(self, log):
        """Register ``log`` and return its index."""
        self.logs.append(log)
        return len(self.logs) - 1

    def log(self, int index):
        """Return the log of an index. Raises IndexError."""
        return self.logs[index]

    cdef int32_t topic_of(self, log) except -1:
        """Return the number of the topic of ``log``; a new topic gets the next number."""
        name = log.topic.encode()
        if name not in self.topic_index:
            self.topic_index[name] = len(self.topics)
            # A new list, because existing chunks keep the list that their rows index.
            self.topics = [*self.topics, name]
        return self.topic_index[name]
