"""Names of the steps of ``DatasetWriter``, where a test can stop or kill it."""

STEPS = (
    # open, or the first roll of a new dataset
    "staging-made",
    "dataset-created",
    "log-read",
    "fence-linked",
    "fence-synced",
    "staging-cleared",
    # commit; "published:0" stands for "published:<i>" of each file
    "files-finished",
    "folders-made",
    "files-synced",
    "staging-synced",
    "entry-linked",
    "log-synced",
    "published:0",
    "committed",
    # an entry that another writer, or an earlier process, has linked; "republished:<i>" likewise
    "entry-trusted",
    "republished:0",
    "entry-published",
    # on the way into the next roll
    "checkpoint-linked",
    "checkpointed",
)

TABLE_STEPS = (
    # publishing in a table, behind "published:<i>" or "republished:<i>" of its files but for the first two
    "table-created",
    "table-evolved",
    "table-ready",
    "table-committed",
)
