from fastwire.columns.builder cimport COL_OWN, VAR_OWN

cdef enum:                       # numbers of Pulsar's own columns, in the order in which ``columns.pyx`` declares them
    COL_LEDGER = COL_OWN
    COL_BATCH_INDEX
    COL_EVENT_TIME
    COL_PRODUCER
    COL_SEQUENCE_ID
    COL_ORDERING_KEY
    COL_SCHEMA_VERSION
    COL_REDELIVERY_COUNT

cdef enum:
    VAR_ORDERING_KEY = VAR_OWN
    VAR_SCHEMA_VERSION

cdef enum:
    HAS_LEDGER = 1 << COL_LEDGER
    HAS_BATCH_INDEX = 1 << COL_BATCH_INDEX
    HAS_EVENT_TIME = 1 << COL_EVENT_TIME
    HAS_PRODUCER = 1 << COL_PRODUCER
    HAS_SEQUENCE_ID = 1 << COL_SEQUENCE_ID
    HAS_ORDERING_KEY = 1 << COL_ORDERING_KEY
    HAS_SCHEMA_VERSION = 1 << COL_SCHEMA_VERSION
    HAS_REDELIVERY_COUNT = 1 << COL_REDELIVERY_COUNT
