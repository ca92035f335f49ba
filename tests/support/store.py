"""A bucket in a local folder by the real library, whose requests a test can let fail."""

from collections.abc import Callable
from pathlib import Path

from obstore.store import LocalStore

from fastwire_daemon.dataset.storage.bucket import Bucket, StoreAwayError, Upload


class LocalBucket(Bucket):
    """Objects are the files in ``path``. ``before`` and ``after`` are called around requests that write.

    What they raise stands for a request that did not arrive, or an answer that was lost.
    """

    def __init__(self, path: Path, *, lease_s: float = 60.0) -> None:
        path.mkdir(parents=True, exist_ok=True)
        store = LocalStore(path, automatic_cleanup=True)
        super().__init__("s3://bucket/orders", store, store, lease_s)
        self.before: Callable[[str, str], None] = lambda kind, name: None
        self.after: Callable[[str, str], None] = lambda kind, name: None
        self.parts: list[int] = []
        """Sizes of the parts that were sent."""

    def create(self, name: str, data: bytes) -> bool:
        self.before("create", name)
        created = super().create(name, data)
        self.after("create", name)
        return created

    def put(self, name: str, data: bytes) -> None:
        self.before("put", name)
        super().put(name, data)
        self.after("put", name)

    def upload(self, name: str) -> Upload:
        begun = super().upload(name)
        send = begun.write

        def counted(part: bytes) -> None:
            self.parts.append(len(part))
            send(part)

        begun.write = counted  # type: ignore[method-assign]
        return begun

    def copy(self, source: str, target: str) -> bool:
        self.before("copy", target)
        copied = super().copy(source, target)
        self.after("copy", target)
        return copied


def fail_once(kind: str, ending: str) -> Callable[[str, str], None]:
    """Return a function for ``before`` or ``after`` that raises at the first request of ``kind`` for such a name."""
    left = [1]

    def fail(each: str, name: str) -> None:
        if each == kind and name.endswith(ending) and left[0]:
            left[0] -= 1
            raise StoreAwayError("no answer")

    return fail
