"""A folder that plain readers can list, written exactly once by any number of writers.

``writer`` is the commit protocol, over ``storage`` (its verbs) and ``disk`` (the operating system); ``log``,
``checkpoint``, ``description`` and ``level`` are what stands where; ``verify`` proves that it all adds up.
"""
