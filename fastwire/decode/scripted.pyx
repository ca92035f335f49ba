"""The base of decoders that read the records of several schemas: a script of the walker for each id of a schema."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from fastwire.decode.decoded cimport REFUSED, Reason, RecordDecoder


cdef class ScriptDecoder(RecordDecoder):
    """Decodes records by the script of their schema. The format owns the scripts, which begin with a ``Head``."""

    cdef int open_scripts(self, Scripts* known, size_t size, bint framed) except -1:
        """Set the scripts of the format's walker, each of ``size`` bytes."""
        self.known = known
        known.size = size
        known.framed = framed
        known.current = -1
        self.programs = []
        self.reasons = []
        return 0

    def __dealloc__(self):
        if self.known is not NULL:
            free(self.known.scripts)

    cdef tuple steps(self):
        return self.programs[self.known.current]

    cdef str reason(self, Reason fault):
        return self.reasons[self.known.current] if fault == REFUSED else RecordDecoder.reason(self, fault)

    cdef object unknown_id(self):
        return self.known.unknown

    def refuse(self, int32_t id, str reason not None):
        """Report each record of the schema ``id`` as bad, for ``reason``."""
        self.new_script(id, None, reason)

    cdef Head* new_script(self, int32_t id, tuple program, str reason) except NULL:
        """Return the script of a schema, zeroed but for its head, and refused until the format has set it."""
        cdef Scripts* known = self.known
        cdef char* scripts = <char*>realloc(known.scripts, (known.count + 1) * known.size)
        cdef Head* head
        if scripts is NULL:
            raise MemoryError()
        known.scripts = scripts
        self.programs.append(program)
        self.reasons.append(reason)
        head = <Head*>(scripts + known.count * known.size)
        memset(head, 0, known.size)
        head.id = id
        head.refused = True
        known.count += 1
        return head
