"""A message system as small as one can be: topics of partitions of records that are numbered from 0, over TCP.

A frame is a size (u32, big-endian, of what follows), a kind (u8), the number of a request (u32) and a body. Requests
are JSON objects of kind 0. Each is answered once, in any order, by a frame with its number: a JSON object (kind 0), or
the records of a fetch (kind 1)::

    u64 offset | i64 milliseconds | key | value | u16 headers, each: key | value
    key, value: i32 size (-1: null), bytes

A consumer of a group acquires a partition before it reads it: the answer comes when no other consumer has it.
"""
