"""A server of S3's protocol in a thread of the test. It keeps objects in memory, and takes any secret.

As a program (``python -P s3_server.py PORT``) it runs until a signal ends it.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from unittest import mock
from urllib.request import Request, urlopen

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from moto.server import main as serve

from fastwire_daemon.dataset.storage.bucket import Bucket, open_bucket

Settings = dict[str, str]


_answer = S3Response._key_response
_one_at_a_time = Lock()


def _answered(self: S3Response, request: Any, full_url: str) -> Any:
    """Answer a request for an object that has been read: of two writers of one name the server closes the other's."""
    with _one_at_a_time:
        return _answer(self, request, full_url)


@contextmanager
def s3_server() -> Iterator[Settings]:
    """Run the server; yields the settings that lead to it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # or each request is a line of a failed test
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with mock.patch.object(S3Response, "_key_response", _answered):
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield {
                "endpoint": f"http://{host}:{port}",
                "allow_http": "true",
                "region": "us-east-1",
                "access_key_id": "test",
                "secret_access_key": "test",
            }
        finally:
            server.stop()


def new_bucket(settings: Settings, name: str) -> Bucket:
    """Make a bucket, and return the place of a dataset in it."""
    name = f"bucket-{name[-40:].replace('_', '-').lower()}"
    with urlopen(Request(f"{settings['endpoint']}/{name}", method="PUT")) as answer:
        assert answer.status == 200
    return open_bucket(f"s3://{name}/orders", settings)


if __name__ == "__main__":
    with mock.patch.object(S3Response, "_key_response", _answered):
        serve(["-H", "127.0.0.1", "-p", *sys.argv[1:]])
