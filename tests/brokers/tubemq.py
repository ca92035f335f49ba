"""A real TubeMQ Master and Broker with a ZooKeeper of their own, started from the jars of Maven Central."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.brokers.maven import cached_jars, java_executable, pom
from tests.brokers.ports import free_ports
from tests.brokers.process import START_LIMIT, JavaBroker, ends_with_parent
from tests.brokers.zookeeper import ZooKeeper

Sections = dict[str, dict[str, Any]]  # of a configuration file

VERSION = "2.4.0"
CLIENT_VERSION = "1.13.0"  # the newest core and client in the registry, which report themselves as 2.4.0

PARTITIONS = 2  # of each store
STORES = {"wide": 2}  # of a topic; all others have one
FLUSHED = "flushed"  # its messages are in its file after each
TOPICS = (*STORES, FLUSHED, *(f"t{number:02}" for number in range(32)))

FLUSH = {"unflushThreshold": 1, "unflushInterval": 1000, "memCacheMsgCntInK": 1, "memCacheFlushIntvl": 4000}
QUICK_START = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # for what does not run long
TOOL_LIMIT = 300.0  # seconds; 5 on a quiet machine, over 120 where many others work
RELOAD_S = 30.0  # a Broker that has not lost its topics serves them 5 to 20 s after a change of the Master
PASSWORD = "abc"  # of the Master's web interface

LIBRARIES = (
    "com.beust:jcommander:1.78",
    "com.google.guava:guava:32.0.1-jre",
    "commons-cli:commons-cli:1.4",
    "commons-io:commons-io:2.11.0",
    "io.dropwizard.metrics:metrics-core:3.2.5",
    "io.prometheus:simpleclient_httpserver:0.14.1",
    "javax.servlet:javax.servlet-api:4.0.1",
    "org.apache.httpcomponents:httpclient:4.5.13",
    "org.apache.velocity:velocity-engine-core:2.3",
    "org.apache.velocity.tools:velocity-tools-generic:3.1",
    "org.dom4j:dom4j:2.1.3",
    "org.eclipse.jetty:jetty-server:9.4.51.v20230217",
    "org.eclipse.jetty:jetty-servlet:9.4.51.v20230217",
    "org.ini4j:ini4j:0.5.4",
    "org.springframework:spring-context:5.3.27",
    "org.springframework:spring-core:5.3.27",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)


def _dependency(coordinates: str, *excluded: str) -> str:
    group, artifact, version = coordinates.split(":")
    without = "".join(
        f"<exclusion><groupId>{one.partition(':')[0]}</groupId><artifactId>{one.partition(':')[2]}</artifactId>"
        "</exclusion>"
        for one in excluded
    )
    return f"""\
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      <exclusions>{without}</exclusions>
    </dependency>
"""


# The server alone would bring in all that its build had; nothing of Berkeley DB is loaded where ZooKeeper keeps the
# metadata.
POM = pom(
    "tubemq",
    "".join(
        (
            _dependency(f"org.apache.inlong:tubemq-server:{VERSION}", "*:*"),
            _dependency(f"org.apache.inlong:tubemq-core:{CLIENT_VERSION}"),
            _dependency(f"org.apache.inlong:tubemq-client:{CLIENT_VERSION}"),
            _dependency("org.apache.zookeeper:zookeeper:3.6.3", "org.slf4j:slf4j-log4j12", "log4j:log4j"),
            *map(_dependency, LIBRARIES),
        )
    ),
)

# The Master answers its web calls through templates, which it wants as files.
TEMPLATES = {"screen": "$sb", "layout": "$screen_placeholder"}


def _jars() -> Path:
    return cached_jars(f"tubemq-{VERSION}", POM, missing=f"org.apache.inlong:inlong-tubemq:{VERSION}")


def _java(folder: Path, *options: str, start: Sequence[str] = QUICK_START) -> list[str]:
    return [
        java_executable(),
        *start,
        "-Dlog4j2.level=warn",
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        *options,
        "-cp",
        f"{_jars()}/*",
    ]


def _write(file: Path, sections: Sections, more: Sections) -> str:
    """Write a configuration file, and return its path. Settings of ``more`` come beside or replace those before."""
    lines: list[str] = []
    for name in {**sections, **more}:
        settings = {**sections.get(name, {}), **more.get(name, {})}
        lines += (f"[{name}]", *(f"{key}={value}" for key, value in settings.items()))
    file.write_text("\n".join((*lines, "")))
    return str(file)


class Master(JavaBroker):
    """A Master, and its web interface. Of several on one ZooKeeper one is active."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, more: Sections | None = None) -> None:
        super().__init__(folder)
        self._zookeeper = zookeeper
        self.more = more or {}
        self.port, self._web_port = free_ports(2)

    def command(self) -> list[str]:
        web = self.folder / "web"
        for kind, content in TEMPLATES.items():
            file = web / "templates" / kind / "webapi.vm"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        settings = {
            "hostName": "127.0.0.1",
            "port": self.port,
            "webPort": self._web_port,
            "webResourcePath": web,
            "confModAuthToken": PASSWORD,
            "consumerBalancePeriodMs": 2000,
            "firstBalanceDelayAfterStartMs": 1000,
            "consumerHeartbeatTimeoutMs": 15000,
        }
        sections: Sections = {
            "master": settings,
            "meta_zookeeper": {"zkServerAddr": f"127.0.0.1:{self._zookeeper.port}"},
            "prometheus": {"promEnable": "false"},
        }
        main = "org.apache.inlong.tubemq.server.tools.MasterStartup"
        written = _write(self.folder / "master.ini", sections, self.more)
        return [*_java(self.folder, "-Xmx256m"), main, "-f", written]

    def healthy(self) -> bool:
        return self.active()

    def active(self) -> bool:
        """Return whether it answers for the cluster: a stand-by refuses every call."""
        try:
            return bool(self.web("op_query", "admin_query_broker_configure")["result"])
        except (OSError, ValueError):
            return False

    def web(self, kind: str, method: str, **arguments: object) -> dict[str, Any]:
        """The answer of the web interface to one call. Raises RuntimeError if it refuses the call."""
        query = urllib.parse.urlencode({"type": kind, "method": method, **arguments})
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/webapi.htm?{query}", timeout=10) as answer:
            said = json.loads(answer.read())
        assert isinstance(said, dict)
        return said

    def change(self, method: str, **arguments: object) -> None:
        """Change the configuration of the cluster."""
        said = self.web("op_modify", method, confModAuthToken=PASSWORD, **arguments)
        if not said["result"]:
            raise RuntimeError(f"{method}: {said}")


class TubeMQBroker(JavaBroker):
    """One Broker, with a Master and a ZooKeeper; its topics are made before it starts, because later ones take long.

    ``start`` has more options for the Broker's Java.
    """

    def __init__(self, folder: Path, *, start: Sequence[str] = QUICK_START) -> None:
        super().__init__(folder)
        self._start = start
        self._zookeeper = ZooKeeper(folder / "zookeeper", _java)
        self.masters = self.make_masters(self._zookeeper)
        self.port, self._web_port = free_ports(2)
        self._unused = [name for name in TOPICS if name not in (*STORES, FLUSHED)]

    def make_masters(self, zookeeper: ZooKeeper) -> list[Master]:
        """The Masters of the cluster, not started."""
        return [Master(self.folder / "master", zookeeper)]

    def more_sections(self) -> Sections:
        """More of the Broker's configuration file."""
        return {}

    def more_registered(self) -> dict[str, Any]:
        """More of what the Master is told of the Broker."""
        return {}

    @property
    def master(self) -> Master:
        """The only Master, or that of several which is active; waits for one."""
        limit = time.monotonic() + START_LIMIT
        while len(self.masters) > 1:
            for one in self.masters:
                if one.active():
                    return one
            if time.monotonic() > limit:
                raise RuntimeError(f"no Master was active after {START_LIMIT:.0f} s")
            time.sleep(0.1)
        return self.masters[0]

    @property
    def master_addresses(self) -> str:
        """All Masters, as clients are told of them."""
        return ",".join(f"127.0.0.1:{one.port}" for one in self.masters)

    def fresh_topic(self) -> str:
        """A topic of one store that no other test uses."""
        return self._unused.pop()

    def flushed_topic(self) -> str:
        """The topic of one store whose messages are in its file at once."""
        return FLUSHED

    @property
    def url(self) -> str:
        return f"tubemq://{self.master_addresses}"

    @property
    def master_port(self) -> int:
        return self.master.port

    @property
    def broker_port(self) -> int:
        return self.port

    def start(self) -> "TubeMQBroker":
        self._zookeeper.start()
        for one in self.masters:
            one.start()
        if not (self.folder / "data").exists():
            self._configure()
        super().start()
        return self

    def stop(self, *, at_once: bool = False) -> None:
        super().stop(at_once=at_once)
        for one in self.masters:
            one.stop(at_once=at_once)
        self._zookeeper.stop(at_once=True)

    def restart_broker(self, *, at_once: bool = False) -> None:
        """Restart the Broker alone; the Master has ``restart``, too."""
        super().stop(at_once=at_once)
        super().start()

    def remove_data(self) -> None:
        super().remove_data()
        self._zookeeper.remove_data()

    def _configure(self) -> None:
        master = self.master
        master.change(
            "admin_add_broker_configure",
            brokerId=1,
            brokerIp="127.0.0.1",
            brokerPort=self.port,
            brokerWebPort=self._web_port,
            deletePolicy="delete,168h",
            numPartitions=PARTITIONS,
            unflushThreshold=1000,
            unflushInterval=10000,
            acceptPublish="true",
            acceptSubscribe="true",
            createUser="admin",
            **self.more_registered(),
        )
        master.change("admin_online_broker_configure", brokerId=1, modifyUser="admin")
        for topic in TOPICS:
            master.change(
                "admin_add_new_topic_record",
                brokerId=1,
                topicName=topic,
                numPartitions=PARTITIONS,
                numTopicStores=STORES.get(topic, 1),
                createUser="admin",
                **FLUSH if topic == FLUSHED else {},
            )

    def command(self) -> list[str]:
        settings = {
            "brokerId": 1,
            "hostName": "127.0.0.1",
            "port": self.port,
            "webPort": self._web_port,
            # The Broker speaks to them without TLS, also where its clients do not.
            "masterAddressList": ",".join(f"127.0.0.1:{one.port}" for one in self.masters),
            "primaryPath": self.folder / "data",
            "maxSegmentSize": 64 << 20,
            "transferSize": 524288,
            "heartbeatPeriodMs": 1000,
            "consumerRegTimeoutMs": 20000,  # as short as it gets
            "logFlushMemDurMs": 1000,
            "logFlushDiskDurMs": 1000,
        }
        sections: Sections = {"broker": settings, "prometheus": {"promEnable": "false"}}
        written = _write(self.folder / "broker.ini", sections, self.more_sections())
        java = _java(self.folder, "-Xmx512m", "-XX:MaxDirectMemorySize=512m", start=self._start)
        return [*java, "org.apache.inlong.tubemq.server.tools.BrokerStartup", "-f", written]

    def healthy(self) -> bool:
        return self.serves(TOPICS[-1])

    def serves(self, topic: str) -> bool:
        """Return whether the Broker takes and gives messages of a topic, by what the Master knows."""
        try:
            said = json.dumps(self.master.web("op_query", "admin_query_topic_info", topicName=topic))
        except (OSError, ValueError):
            return False
        return '"isSrvAcceptPublish": true' in said and '"isSrvAcceptSubscribe": true' in said

    def wait_until_serves(self, topic: str) -> None:
        """Wait until a Broker whose Master has changed serves a topic; where it has lost it, reload as operators do.

        A Master is active before it has read all topics from ZooKeeper. A Broker that registers in between is told of
        some of them only, and closes the others, for 45 s as a rule.
        """
        limit = time.monotonic() + START_LIMIT
        reload_at = time.monotonic() + RELOAD_S
        while not self.serves(topic):
            if time.monotonic() > limit:
                raise RuntimeError(f"the Broker did not serve {topic} after {START_LIMIT:.0f} s")
            if time.monotonic() > reload_at:
                self.master.change("admin_reload_broker_configure", brokerId=1, modifyUser="admin")
                reload_at = time.monotonic() + RELOAD_S
            time.sleep(0.2)

    def tool(self, name: str, *arguments: str) -> str:
        """Run a stock command-line tool to its end, and return what it says. Fails if it fails."""
        done = subprocess.run(
            [*ends_with_parent(), *self.tool_command(name, *arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            text=True,
            timeout=TOOL_LIMIT,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def tool_command(self, name: str, *arguments: str, start: Sequence[str] = QUICK_START) -> list[str]:
        """Return the command of a stock command-line tool; ``start`` has more options for Java."""
        main = f"org.apache.inlong.tubemq.server.tools.cli.{name}"
        java = _java(self.folder, "-Xmx256m", start=start)
        return [*java, main, "--master-servers", self.master_addresses, *arguments]
