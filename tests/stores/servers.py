"""Servers of S3's protocol, and one of Azure's, on a free port of this machine."""

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import ssl
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any, Self

from tests.brokers.certs import Certificates
from tests.brokers.maven import BrokerUnavailableError
from tests.brokers.ports import free_ports
from tests.brokers.process import ServerProcess
from tests.stores.programs import go_program, node_package
from tests.support import s3_server

BUCKET = "tests"
KEY = "tester"
SECRET = "only-on-this-machine"
REGION = "us-east-1"
AN_HOUR_AGO = 3600.0


class StoreServer(ServerProcess):
    """An object store that listens on ``port``, with TLS if it is given certificates."""

    def __init__(self, folder: Path, certificates: Certificates | None = None) -> None:
        super().__init__(folder)
        self.certificates = certificates
        (self.port,) = free_ports(1)

    @property
    def endpoint(self) -> str:
        """URL of the service."""
        return f"{'http' if self.certificates is None else 'https'}://127.0.0.1:{self.port}"

    def _connection(self) -> http.client.HTTPConnection:
        if self.certificates is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        context = ssl.create_default_context(cafile=self.certificates.ca)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=context)

    def healthy(self) -> bool:
        connection = self._connection()
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True


class S3Server(StoreServer):
    """A store with the protocol of S3, one bucket, and one key that may do everything."""

    def start(self) -> Self:
        super().start()
        # 0.3 s, so only for who starts a store.
        import botocore.session

        client: Any = botocore.session.get_session().create_client(
            "s3",
            REGION,
            endpoint_url=self.endpoint,
            verify=None if self.certificates is None else str(self.certificates.ca),
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )
        try:
            client.create_bucket(Bucket=BUCKET)
        except (client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            pass  # started again
        return self


class VersityGateway(S3Server):
    """versitygw: objects are files in ``data/<bucket>``, and outlive the process. Conditional creates are atomic."""

    def command(self) -> list[str]:
        program = go_program("github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        keys = ["--access", KEY, "--secret", SECRET, "--region", REGION]
        if self.certificates is not None:
            keys += ["--cert", str(self.certificates.cert), "--key", str(self.certificates.key)]
        return [str(program), *keys, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(data)]

    def age(self, pattern: str) -> list[str]:
        """Let the objects that fit ``pattern`` look as if they had been written an hour ago; return their names."""
        root = self.folder / "data" / BUCKET
        then = time.time() - AN_HOUR_AGO
        aged = []
        for file in root.glob(pattern):
            try:
                os.utime(file, (then, then))
            except FileNotFoundError:
                continue  # deleted meanwhile
            aged.append(str(file.relative_to(root)))
        return aged


class Moto(S3Server):
    """moto: objects are in memory and end with the process. It looks at no signature, whatever the key."""

    def command(self) -> list[str]:
        # Without the program's own folder in the path of imports: its json.py is not the library's.
        return [sys.executable, "-P", s3_server.__file__, str(self.port)]


class Azurite(StoreServer):
    """Azurite: the protocol of Azure's blobs, with the one account that all clients know."""

    ACCOUNT = "devstoreaccount1"
    # Public: each Azurite has it.
    ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def command(self) -> list[str]:
        node = shutil.which("node")
        if node is None:
            raise BrokerUnavailableError("no node to run Azurite with: apt-get install nodejs npm")
        program = node_package("azurite", "3.35.0") / "dist" / "src" / "blob" / "main.js"
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        # Some of its versions know no newer version of the protocol than that of the client's library.
        return [
            *(node, str(program), "--silent", "--skipApiVersionCheck", "--disableTelemetry"),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(data)),
        ]

    def start(self) -> Self:
        super().start()
        self._create_container()
        return self

    def _create_container(self) -> None:
        """Make the container, by the signature of a shared key."""
        named = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        resource = f"/{self.ACCOUNT}/{self.ACCOUNT}/{BUCKET}\nrestype:container"
        text = "\n".join(("PUT", *[""] * 11, *(f"{name}:{value}" for name, value in named.items()), resource))
        digest = hmac.digest(base64.b64decode(self.ACCOUNT_KEY), text.encode(), hashlib.sha256)
        signed = f"SharedKey {self.ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            path = f"/{self.ACCOUNT}/{BUCKET}?restype=container"
            connection.request("PUT", path, headers={**named, "authorization": signed, "content-length": "0"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status not in (201, 409):  # 409: started again
                raise RuntimeError(f"Azurite made no container: {answer.status} {said!r}")
        finally:
            connection.close()
