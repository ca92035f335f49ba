from fastwire.columns.builder cimport COL_OWN

cdef enum:                       # numbers of TubeMQ's own columns, in the order in which ``columns.py`` declares them
    COL_BROKER = COL_OWN
    COL_ROW
    COL_MESSAGE_ID
    COL_EVENT_TIME
    COL_MSG_TYPE
