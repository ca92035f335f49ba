"""A frame pins the buffer behind it."""

import pytest

from fastwire.wire.frame import Frame


def test_it_pins_and_lets_go() -> None:
    data = bytearray(b"abc")
    frame = Frame(data)
    assert frame.size == 3
    with pytest.raises(BufferError):
        data.append(0)
    del frame
    data.append(0)
    assert data == b"abc\0"


def test_many_frames_over_one_buffer() -> None:
    data = bytearray(1000)
    frames = [Frame(memoryview(data)[start:]) for start in range(200)]
    assert [frame.size for frame in frames] == list(range(1000, 800, -1))
    del frames[:199]
    with pytest.raises(BufferError):
        data.clear()
    frames.clear()
    data.clear()


@pytest.mark.parametrize("data", ["text", 5, None, memoryview(b"abcd")[::2]])
def test_only_a_plain_buffer(data: object) -> None:
    with pytest.raises((TypeError, BufferError)):
        Frame(data)  # type: ignore[arg-type]
