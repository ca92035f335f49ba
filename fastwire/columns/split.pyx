# cython: boundscheck=True, cdivision=True
"""Splits chunks by groups of logs: the spans, runs and dead letters of each group; its rows are given later."""

from libc.stdint cimport int32_t, int64_t

from fastwire.columns.chunk cimport Chunk, SpanRow, places_open_span, places_run

__all__ = ["single_group", "split_chunks"]


def single_group(Chunk chunk not None, const int32_t[::1] groups not None):
    """Return the group of all logs in ``chunk``, whose number is ``groups[log index]``; -1 if there are several."""
    cdef int64_t i
    cdef int32_t group = -1
    if chunk._marked:
        return -1
    for i in range(chunk.places.span_count):
        if group < 0:
            group = groups[chunk.places.spans[i].log]
        elif group != groups[chunk.places.spans[i].log]:
            return -1
    return group


cdef Chunk part_of(dict parts, int32_t group, Chunk chunk):
    """Return the part of a group, which begins with ``chunk`` if there is none yet."""
    cdef Chunk part = parts.get(group)
    if part is None:
        part = Chunk.__new__(Chunk)
        part._logs = chunk._logs
        part._topics = []
        part._marked = []
        part._row = chunk._row
        part.dead_letters = []
        part._dead_letter_charge = None
        part.columns.layout, part.columns.mask = chunk.columns.layout, chunk.columns.mask
        parts[group] = part
    if part._logs is not chunk._logs:
        raise ValueError("chunks of different sources")
    return part


def split_chunks(list chunks not None, const int32_t[::1] groups not None):
    """Return the part of each group in ``chunks``, by its number: spans, runs, dead letters and the count of rows.

    ``groups`` has the group of each log index. ``chunks`` are of one source and one system, in the order of their
    arrival. The rows of a part are those of its runs, one chunk after the other; ``Chunk.carry`` gives them to it. The
    memory of dead letters is charged until the last part of their chunk is gone. Times that do not fit are counted in
    the part of the first row.
    """
    cdef Chunk chunk, part
    cdef SpanRow* row
    cdef int64_t i, at
    cdef int32_t log, group, last = -1
    cdef dict parts = {}
    part = None
    for chunk in chunks:
        for i in range(chunk.places.span_count):
            row = &chunk.places.spans[i]
            group = groups[row.log]
            if part is None or group != last:
                part, last = part_of(parts, group, chunk), group
            at = places_open_span(&part.places, row.log, row.start_a, row.start_b)
            if at < 0:
                raise MemoryError()
            part.places.spans[at] = row[0]
        for i in range(chunk.places.run_count):
            log = chunk.places.runs[i].log
            group = groups[log]
            if part is None or group != last:
                part, last = part_of(parts, group, chunk), group
            if places_run(&part.places, log, part.rows, chunk.places.runs[i].rows):
                raise MemoryError()
            part.rows += chunk.places.runs[i].rows
            if i == 0:
                part.columns.unfit_times += chunk.columns.unfit_times
        if chunk.dead_letters:
            index = {log_: number for number, log_ in enumerate(chunk._logs)}
            for letter in chunk.dead_letters:
                part, last = part_of(parts, groups[index[letter.log]], chunk), -1
                part.dead_letters.append(letter)
                if part._charges is None:
                    part._charges = []
                if not part._charges or part._charges[-1] is not chunk._dead_letter_charge:
                    part._charges.append(chunk._dead_letter_charge)
            part = None
    return parts
