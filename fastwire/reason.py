"""The reasons of dead letters: stable names for programs, each with its cause and what to do, for people."""

from enum import StrEnum

_SENDER = "Look at what wrote it: the client, a proxy, the disk of the broker. `--write` keeps the bytes."
_KEY = "Give the private key in `encryption.private_keys`."
_MEMORY = "Raise `daemon.memory`."
_SCHEMA = "Compare the schema in the configuration with that of the producer."
_DATA = "Fix the producer, or widen the schema."


class Reason(StrEnum):
    """The reason of a dead letter: the first word of the text that is kept with it.

    ``when`` is the cause and ``todo`` the advice. Where Pulsar has a ValidationError for it, the name is Pulsar's
    (spec: pulsar 13.4).
    """

    when: str
    todo: str

    def __new__(cls, name: str, when: str, todo: str) -> "Reason":
        """Make a member; enum calls it, programs look a reason up by its name alone."""
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.when = when
        reason.todo = todo
        return reason

    # -- entries of a broker
    CHECKSUM = "ChecksumMismatch", "The checksum of an entry is another one: none of its bytes can be trusted.", _SENDER
    METADATA = "MetadataError", "The metadata of an entry is unreadable or contradicts itself.", _SENDER
    DECRYPTION = "DecryptionError", "No key opens an encrypted entry.", _KEY
    SIZE = "UncompressedSizeCorruption", "An entry does not have the announced size without compression.", _SENDER
    DECOMPRESSION = "DecompressionError", "An entry cannot be decompressed.", _SENDER
    BATCH = "BatchDeSerializeError", "Pulsar: the messages within an entry are unreadable.", _SENDER
    MESSAGE = "CorruptMessage", "A batch, a bundle or a message is malformed.", _SENDER
    TOO_LARGE = "TooLarge", "An entry or a value takes more memory than one may: it may be sound.", _MEMORY
    FRAME = "FrameTooLarge", "An entry is larger than the memory for one; none of its bytes are kept.", _MEMORY
    ENCRYPTED = "Encrypted", "Pulsar: an entry is encrypted, and no keys are configured.", _KEY
    CHUNKED = "Chunked", "Pulsar: parts of a chunked message that can never be completed.", _SENDER
    COMPACTED = "CompactedIndexes", "Pulsar: the indexes of a compacted batch are unreadable.", _SENDER
    REDELIVERED = (
        "RedeliveredTooOften",
        "Pulsar's client: a message came more often than its policy allows.",
        ("Find out why the program does not acknowledge it."),
    )

    # -- values of records
    TRUNCATED = "Truncated", "The value ends within a field.", _SCHEMA
    TRAILING = "TrailingBytes", "There are bytes after the value.", _SCHEMA
    NO_VALUE = "NoValue", "The value is null (a tombstone).", "Ask for the column `_deleted`, which makes it a row."
    RANGE = "OutOfRange", "A number is not one of its type.", _DATA
    UTF8 = "InvalidUtf8", "A text is not UTF-8.", _DATA
    SYMBOL = "UnknownSymbol", "An enum of the schema does not have this symbol.", _SCHEMA
    DECIMAL = "DecimalTooLarge", "A decimal has more digits than the schema allows.", _DATA
    VARINT = "InvalidVarint", "A varint has more than 64 bits.", _SCHEMA
    LENGTH = "InvalidLength", "A length is negative.", _SCHEMA
    DEEP = "TooDeep", "A value nests deeper than it may.", _DATA
    NO_SCHEMA_ID = (
        "NoSchemaId",
        "The value does not begin with the id of a schema.",
        ("Leave out `registry` if the producers use none."),
    )
    UNEXPECTED_NULL = "UnexpectedNull", "A null stands in a column that takes none.", _DATA
    BOOLEAN = "InvalidBoolean", "A boolean is neither 0 nor 1.", _SCHEMA
    BRANCH = "UnknownBranch", "A union of the schema does not have this branch.", _SCHEMA
    BLOCK = "InvalidBlock", "The items of an array or map do not have the announced size.", _SCHEMA
    JSON = "InvalidJson", "The value is not JSON.", _DATA
    ESCAPE = "InvalidEscape", "A text of JSON has an unknown escape, or half of a surrogate pair.", _DATA
    TYPE = "WrongType", "A value of JSON is not one that its column takes.", _DATA
    MISSING = "MissingField", "A field that the schema requires is missing.", _DATA
    DUPLICATE = "DuplicateKey", "A field of JSON is there twice.", _DATA
    INEXACT = "Inexact", "A number or time has decimal places that its column does not keep.", _DATA
    BASE64 = "InvalidBase64", "A text of JSON is not base64.", _DATA
    TIME = "InvalidTime", "A text is not a date, time or timestamp.", _DATA
    TAG = "InvalidTag", "A tag of Protobuf has no field number or wire type.", _SCHEMA
    OTHER_MESSAGE = "OtherMessage", "The value is a message of another type of the schema.", "Set `decode.message`."
    ONEOF = "RepeatedOneof", "Members of a oneof replace each other more often than the size warrants.", _DATA
    KEY_NULL = "NullKey", "Spark: a column of `dedupe.key` is null.", _DATA

    # -- schemas, transforms, places
    UNKNOWN_SCHEMA = (
        "UnknownSchema",
        "The registry or the broker does not know the schema of the value.",
        ("Register the schema, then write the values back (`--replay`)."),
    )
    INCOMPATIBLE_SCHEMA = (
        "IncompatibleSchema",
        "Values of this schema cannot become the columns of the dataset.",
        ("Land them at a new path, or fix the schema."),
    )
    NEW_COLUMNS = (
        "NewColumns",
        "The schema, or a value whose columns are inferred, has new or wider columns that are not added.",
        ('Set `evolve = "add"`, then write the values back. The log says why a column cannot be added.'),
    )
    KEY_VALUE = "InvalidKeyValue", "A pair of key and value (Pulsar's KeyValue) is malformed.", _SENDER
    TRANSFORM = "TransformFailed", "The `transform` fails for the value.", "Fix the query, then write the values back."
    LONG_FOLDER = (
        "TooLongForAFolder",
        "A value of `partition_by` is too long for the name of a folder.",
        ("Partition by another column."),
    )
    NO_FOLDER = (
        "NoNameForAFolder",
        "Readers would take the name of the folder for another value.",
        ("Partition by another column."),
    )
    REFUSED = (
        "RefusedByTopic",
        "The topic of the sink does not take the record.",
        ("The text after the reason has the broker's answer: often the size, or a null value."),
    )
