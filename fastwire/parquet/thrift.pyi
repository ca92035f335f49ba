from collections.abc import Sequence

__all__ = [
    "BINARY",
    "FALSE",
    "I8",
    "I16",
    "I32",
    "I64",
    "LIST",
    "STRUCT",
    "TRUE",
    "binary",
    "integer",
    "many",
    "struct",
]

TRUE: int
FALSE: int
I8: int
I16: int
I32: int
I64: int
BINARY: int
LIST: int
STRUCT: int

def integer(value: int) -> bytes: ...
def binary(value: bytes) -> bytes: ...
def struct(*fields: tuple[int, int, bytes]) -> bytes: ...
def many(kind: int, values: Sequence[bytes]) -> bytes: ...
