"""A real catalog of Iceberg's REST protocol: the one of Iceberg's own tests, with the jars of Maven Central."""

import urllib.request
from pathlib import Path

from tests.brokers.maven import cached_jars, dependency, java_executable, pom
from tests.brokers.ports import free_ports
from tests.brokers.process import JavaBroker
from tests.stores.servers import KEY, REGION, SECRET

VERSION = "1.11.0"
JETTY = "12.1.3"
JARS = (
    ("org.apache.iceberg:iceberg-core", VERSION, ""),
    ("org.apache.iceberg:iceberg-core", VERSION, "tests"),
    ("org.apache.iceberg:iceberg-aws", VERSION, ""),  # files in stores of S3's protocol
    ("org.apache.iceberg:iceberg-aws-bundle", VERSION, ""),
    ("org.apache.hadoop:hadoop-client-api", "3.4.2", ""),  # files of this machine
    ("org.apache.hadoop:hadoop-client-runtime", "3.4.2", ""),
    ("org.eclipse.jetty:jetty-server", JETTY, ""),
    ("org.eclipse.jetty:jetty-xml", JETTY, ""),
    ("org.eclipse.jetty.ee10:jetty-ee10-servlet", JETTY, ""),
    ("org.xerial:sqlite-jdbc", "3.50.3.0", ""),
    ("org.slf4j:slf4j-simple", "2.0.17", ""),
)
POM = pom(
    "iceberg-catalog",
    "".join(
        dependency(name, version, f"<classifier>{kind}</classifier>" if kind else "") for name, version, kind in JARS
    ),
)
# The server of the tests has a main class, which listens on all interfaces.
SERVER = """<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "configure_10_0.dtd">
<Configure class="org.eclipse.jetty.server.Server">
 <Arg><New class="java.net.InetSocketAddress"><Arg>127.0.0.1</Arg><Arg type="int">{port}</Arg></New></Arg>
 <Set name="handler"><New class="org.eclipse.jetty.ee10.servlet.ServletContextHandler"><Call name="addServlet">
  <Arg><New class="org.eclipse.jetty.ee10.servlet.ServletHolder">
   <Arg><New class="org.apache.iceberg.rest.RESTCatalogServlet"><Arg>
    <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg>
     <Call class="org.apache.iceberg.CatalogUtil" name="buildIcebergCatalog">
      <Arg>tests</Arg>
      <Arg><Map>{properties}</Map></Arg>
      <Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg>
     </Call>
    </Arg></New>
   </Arg></New></Arg>
  </New></Arg>
  <Arg>/*</Arg>
 </Call></New></Set>
</Configure>
"""


class RestCatalog(JavaBroker):
    """A catalog whose tables are kept in a file, and outlive the process.

    Their files may be in folders of this machine and in the store at ``s3``, a URL. It checks no credentials, and
    gives a token to each client.
    """

    def __init__(self, folder: Path, s3: str) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)
        self._s3 = s3

    @property
    def uri(self) -> str:
        """URL of the service."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{data}/catalog.db",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{data}/warehouse",
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            "s3.endpoint": self._s3,
            "s3.path-style-access": "true",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "client.region": REGION,
        }
        entries = (f"<Entry><Item>{name}</Item><Item>{value}</Item></Entry>" for name, value in properties.items())
        server = self.folder / "server.xml"
        server.write_text(SERVER.format(port=self.port, properties="".join(entries)))
        jars = cached_jars(f"iceberg-{VERSION}", POM)
        return [
            *(java_executable(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"),
            *("org.eclipse.jetty.xml.XmlConfiguration", str(server)),
        ]

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5):
                return True
        except OSError:
            return False
