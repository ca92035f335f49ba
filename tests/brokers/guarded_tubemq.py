"""A real TubeMQ that lets in only who shows a certificate and signs its requests, with two Masters."""

import socket
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.brokers.certs import Certificates, make_certificates
from tests.brokers.ports import free_ports
from tests.brokers.tubemq import Master, Sections, TubeMQBroker
from tests.brokers.zookeeper import ZooKeeper

SECRET = "changeit"  # of the servers' key stores
CHECKS = {"startConsumeAuthenticate": "true", "startProduceAuthenticate": "true", "startVisitTokenCheck": "true"}
TAKEOVER = {"zkSessionTimeoutMs": 6000, "zkMasterCheckPeriodMs": 1000}  # within seconds


class _GuardedMaster(Master):
    """One of several: it is up when it listens, because one that stands by refuses every call."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, tls: Sections) -> None:
        super().__init__(folder, zookeeper, {"master": CHECKS, "meta_zookeeper": TAKEOVER, **tls})

    def healthy(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.tls_port), timeout=1):
                return True
        except OSError:
            return False

    @property
    def tls_port(self) -> int:
        return int(self.more["tlsSetting"]["tlsPort"])


class GuardedTubeMQ(TubeMQBroker):
    """A Broker and two Masters that want certificates of ``certificates`` and signed requests.

    Which password has signed them is not looked at: TubeMQ without plug-ins wants a signature, and takes any.
    """

    def __init__(self, folder: Path) -> None:
        self.certificates = make_certificates(folder / "tls")
        self._stores = _key_stores(folder / "tls", self.certificates)
        super().__init__(folder)
        self._tls = self._tls_sections()

    def make_masters(self, zookeeper: ZooKeeper) -> list[Master]:
        folders = (self.folder / f"master-{number}" for number in (1, 2))
        return [_GuardedMaster(folder, zookeeper, self._tls_sections()) for folder in folders]

    def more_sections(self) -> Sections:
        return self._tls

    def more_registered(self) -> dict[str, Any]:
        return {"brokerTLSPort": self._tls["tlsSetting"]["tlsPort"]}

    @property
    def master_addresses(self) -> str:
        return ",".join(f"127.0.0.1:{one.tls_port}" for one in self.masters if isinstance(one, _GuardedMaster))

    @property
    def url(self) -> str:
        return f"tubemq+ssl://{self.master_addresses}"

    def _tls_sections(self) -> Sections:
        (port,) = free_ports(1)
        return {"tlsSetting": {"tlsEnable": "true", "tlsPort": port, "tlsTwoWayAuthEnable": "true", **self._stores}}


def _key_stores(folder: Path, certificates: Certificates) -> dict[str, Any]:
    """Write what Java reads, and return the settings that name it."""
    key = serialization.load_pem_private_key(certificates.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(certificates.cert.read_bytes())
    locked = serialization.BestAvailableEncryption(SECRET.encode())
    own, trusted = folder / "server.p12", folder / "trusted.p12"
    own.write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", key, certificate, [certificates.authority], locked)
    )
    trusted.write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(certificates.authority, b"authority")], locked)
    )
    return {
        "tlsKeyStorePath": own,
        "tlsKeyStorePassword": SECRET,
        "tlsTrustStorePath": trusted,
        "tlsTrustStorePassword": SECRET,
    }
