"""A message system as small as one can be: a broker with topics of partitions, whose records are numbered from 0.

It has no groups, no login and no TLS: the dataset is the only cursor. A frame is a size (u32, big-endian, of what
follows), a kind (u8) and a body. Requests are JSON objects of kind 0. Each connection answers them in their order: with
a JSON object (kind 0), or with the records from the offset of a fetch on (kind 1), as soon as there are some::

    i64 milliseconds | key | value
    key, value: i32 size (-1: null), bytes
"""
