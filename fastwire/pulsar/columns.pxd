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
