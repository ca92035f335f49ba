"""A real Pulsar standalone broker, started from the jars of Maven Central.

Used by the pytest fixtures (``tests.brokers.fixtures``) and, as ``python -m tests.brokers.pulsar``, by anything else
that wants a broker: it prints one JSON line with the addresses when the broker is usable and runs until its standard
input closes or SIGTERM comes. Whatever ends the starting process, Java ends with it: the kernel kills it when its
parent is gone.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

from tests.brokers.admin import PulsarAdmin
from tests.brokers.certs import Certificates, make_certificates, make_token
from tests.brokers.maven import BrokerUnavailableError, cached_jars, java_executable, pom
from tests.brokers.ports import free_ports
from tests.brokers.process import JavaBroker
from tests.support.tcp_proxy import Proxy

VERSION = "4.0.7"

POM = pom(
    "pulsar-standalone",
    f"""\
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar-package-filesystem-storage</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>bouncy-castle-bc</artifactId><version>{VERSION}</version>
      <classifier>pkg</classifier>
    </dependency>
    <!-- Without versions: the BOM pins the ones that the broker was compiled with. -->
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j2-impl</artifactId></dependency>
""",
    managed=f"""\
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId><version>{VERSION}</version>
    <type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
""",
)

LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} [%t] %-5level %logger{1} - %msg%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="org.apache.pulsar.broker.service" level="info"/>
    <Root level="warn"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""

OPENED_PACKAGES = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.base/java.lang",
    "java.base/java.util",
    "java.management/sun.management",
)

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

METADATA_DRIVERS = "org.apache.pulsar.metadata.bookkeeper"

SETTINGS = {
    "clusterName": "standalone",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "listeningInterface": "lo",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "journalSyncData": "false",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "loadBalancerEnabled": "false",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "backlogQuotaCheckIntervalInSeconds": "1",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "enableBrokerTopicListWatcher": "true",
    "subscriptionPatternMaxLength": "500",
    "topicLevelPoliciesEnabled": "true",
    "systemTopicEnabled": "true",
    # Readers look at what a subscription has acknowledged already.
    "defaultRetentionTimeInMinutes": "120",
    "defaultRetentionSizeInMB": "4096",
}

# Whom the guarded broker knows besides the bearers of its tokens: names of certificates, and a user.
CERTIFICATE_ROLE = "landing-certificate"
USER, PASSWORD = "landing-user", "pass word 1"  # no colon: a broker takes user and password apart at each
PASSWORD_HASH = "$apr1$fastwire$ev2iBQZPt2uFvPvyB6Ckf."  # openssl passwd -apr1 -salt fastwire

_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"

# The guarded broker: who does not say who he is is refused, and asked again when that has ended; limits are met early,
# ledgers change often, and a silent client is dropped after seconds.
GUARDED_SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProviders": ",".join(_PROVIDERS + kind for kind in ("Token", "Tls", "Basic")),
    "authenticationRefreshCheckSeconds": "1",
    "authorizationEnabled": "true",
    "superUserRoles": f"admin,{CERTIFICATE_ROLE},{USER}",
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "maxUnackedMessagesPerConsumer": "200",
    "keepAliveIntervalSeconds": "5",
    "managedLedgerMaxEntriesPerLedger": "100",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


class PulsarBroker(JavaBroker):
    """One broker process with its folder; ``start`` and ``stop`` may follow each other on the same data and ports.

    It must be started on the main thread: the kernel takes the end of the starting thread for the end of the parent.
    A ``quick`` one starts in less processor time, and is slow when it has many records.
    """

    def __init__(
        self, folder: Path, *, guarded: bool = False, quick: bool = True, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__(folder)
        self.guarded = guarded
        self._quick = quick
        self.certificates: Certificates | None = None
        self._settings = dict(settings or {})
        self._secret = secrets.token_bytes(32)
        self._port, self._tls_port, self._web_port, self._bookie_port = free_ports(4)

    def proxy(self) -> Proxy:
        """Return a proxy at the address of its URL."""
        return Proxy(self.port)

    def advertise(self, **hosts: str) -> None:
        """Have a listener of each name, whose clients are told that host; the first is the broker's own."""
        told = ",".join(f"{name}:pulsar://{host}:{self._port}" for name, host in hosts.items())
        self._settings |= {
            "advertisedListeners": told,
            "internalListenerName": next(iter(hosts)),
            "advertisedAddress": "",
        }

    @property
    def service_url(self) -> str:
        """Plain address; a guarded broker asks for a token there too."""
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def tls_url(self) -> str:
        """TLS address of a guarded broker."""
        return f"pulsar+ssl://127.0.0.1:{self._tls_port}"

    @property
    def port(self) -> int:
        """Port of the plain address."""
        return self._port

    @property
    def admin(self) -> PulsarAdmin:
        """The admin interface, as a super user."""
        return PulsarAdmin(f"http://127.0.0.1:{self._web_port}", self.token("admin") if self.guarded else None)

    def token(self, role: str, life_s: float | None = None) -> str:
        """A token that a guarded broker accepts for ``role``, for ever or so long; ``admin`` may do everything."""
        return make_token(self._secret, role, None if life_s is None else time.time() + life_s)

    def command(self) -> list[str]:
        java = java_executable()
        jars = cached_jars(f"pulsar-{VERSION}", POM)
        self._write_configuration()
        data = self.folder / "data"
        # Two of these fit beside a test run: the plain broker gets what a demo of a million records needs.
        tuning: tuple[str, ...] = ("-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=2g")
        if self.guarded:
            tuning = ("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=1g")
        if self._quick:
            tuning = (*tuning, *QUICK_START)
        return [
            java,
            *tuning,
            *(flag for package in OPENED_PACKAGES for flag in ("--add-opens", f"{package}=ALL-UNNAMED")),
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dbookkeeper.metadata.bookie.drivers={METADATA_DRIVERS}.PulsarMetadataBookieDriver",
            f"-Dbookkeeper.metadata.client.drivers={METADATA_DRIVERS}.PulsarMetadataClientDriver",
            f"-Dlog4j.configurationFile={self.folder / 'log4j2.xml'}",
            f"-Djava.io.tmpdir={self.folder}",
            "-XX:+ExitOnOutOfMemoryError",
            "-cp",
            f"{jars}/*",
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--config",
            str(self.folder / "standalone.conf"),
            "-nfw",
            "-nss",
            # The two ways to say where it is must not stand beside each other.
            *(() if "advertisedListeners" in self._settings else ("--advertised-address", "127.0.0.1")),
            "--metadata-dir",
            str(data / "metadata"),
            "--bookkeeper-dir",
            str(data / "bookkeeper"),
            "--bookkeeper-port",
            str(self._bookie_port),
            "--num-bookies",
            "1",
        ]

    def _write_configuration(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **SETTINGS,
            "brokerServicePort": str(self._port),
            "webServicePort": str(self._web_port),
        }
        if self.guarded:
            if self.certificates is None:
                self.certificates = make_certificates(self.folder / "certificates")
            secret = self.folder / "token-secret"
            secret.write_bytes(self._secret)
            users = self.folder / "users"
            users.write_text(f"{USER}:{PASSWORD_HASH}\n")
            settings |= {
                **GUARDED_SETTINGS,
                "tokenSecretKey": secret.as_uri(),
                "basicAuthConf": users.as_uri(),
                "brokerClientAuthenticationParameters": f"token:{self.token('admin')}",
                "brokerServicePortTls": str(self._tls_port),
                "tlsCertificateFilePath": str(self.certificates.cert),
                "tlsKeyFilePath": str(self.certificates.key),
                "tlsTrustCertsFilePath": str(self.certificates.ca),
            }
        settings |= self._settings
        (self.folder / "standalone.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.folder / "log4j2.xml").write_text(LOG4J)

    def healthy(self) -> bool:
        return self.admin.healthy()


def main() -> int:
    """Run one broker until standard input closes or SIGTERM or SIGINT comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.pulsar", description=main.__doc__)
    parser.add_argument("--guarded", action="store_true", help="TLS, token authentication and small limits")
    parser.add_argument("--quick", action="store_true", help="starts in less processor time, slow with many records")
    parser.add_argument("--keep", metavar="FOLDER", help="keep data, log and configuration there")
    parser.add_argument("--topic", help="create this topic")
    parser.add_argument("--partitions", type=int, default=0, help="number of its partitions; 0 makes a plain one")
    options = parser.parse_args()
    done = threading.Event()

    def finish(_number: int, _frame: FrameType | None) -> None:
        done.set()
        # A signal that comes while the broker starts must not wait for its health.
        if starting:
            raise KeyboardInterrupt

    starting = True
    signal.signal(signal.SIGTERM, finish)
    signal.signal(signal.SIGINT, finish)
    folder = Path(options.keep or tempfile.mkdtemp(prefix="fastwire-pulsar-"))
    broker = PulsarBroker(folder, guarded=options.guarded, quick=options.guarded or options.quick)
    try:
        broker.start()
        if options.topic:
            broker.admin.create_topic(options.topic, options.partitions)
        starting = False
        print(json.dumps(_addresses(broker)), flush=True)
        threading.Thread(target=_wait_for_end_of_input, args=(done,), daemon=True).start()
        done.wait()
    except BrokerUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    finally:
        broker.stop(at_once=not options.keep)
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _addresses(broker: PulsarBroker) -> dict[str, str | int]:
    process = broker.process
    assert process is not None
    found: dict[str, str | int] = {
        "url": broker.service_url,
        "admin": broker.admin.web_url,
        "pid": process.pid,
        "log": str(broker.log_path),
    }
    if broker.certificates is not None:
        found |= {
            "tls_url": broker.tls_url,
            "ca": str(broker.certificates.ca),
            "token": broker.token("admin"),
        }
    return found


def _wait_for_end_of_input(done: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    done.set()


if __name__ == "__main__":
    sys.exit(main())
