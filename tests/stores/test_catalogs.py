"""Iceberg tables of a real catalog: each file is in the table once, whatever happens between it and the writer."""

import hashlib
import hmac
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qs, quote

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.writer import DatasetWriter
from tests.crash.scene import Scene
from tests.real.daemon import verify as verify_by_command
from tests.stores.catalog import RestCatalog
from tests.stores.place import AzurePlace, BucketPlace
from tests.stores.proxy import NOTHING, Fault, Request, StoreProxy
from tests.stores.reading import s3_files
from tests.stores.servers import BUCKET, Azurite, Moto, S3Server
from tests.support import icebergs, rolls, tables
from tests.support.sequence_audit import DIGITS, numbers_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.store


@dataclass(frozen=True)
class Landing:
    """A dataset in a folder, and its table in the catalog at ``uri``."""

    path: Path
    uri: str
    table: str

    def settings(self, **more: str) -> dict[str, str]:
        return {"type": "rest", "name": "default", "uri": self.uri, "table": self.table, **more}

    def opened(self, **more: str) -> DatasetWriter:
        """A writer that reaches the catalog by these settings besides."""
        return icebergs.opened(self.path, catalog=self.settings(**more))

    def through(self, uri: str) -> "Landing":
        """The same table by another way."""
        return replace(self, uri=uri)

    def loaded(self) -> Table:
        """The table as another program sees it."""
        return load_catalog("default", type="rest", uri=self.uri).load_table(self.table)

    def has_files(self) -> bool:
        """Return True if the table is there and holds something."""
        try:
            return bool(self.loaded().snapshots())
        except NoSuchTableError:
            return False


@pytest.fixture
def landing(rest_catalog: RestCatalog, tmp_path: Path) -> Landing:
    """A dataset whose table does not exist yet."""
    return Landing(tmp_path / "orders", rest_catalog.uri, f"shop_{uuid.uuid4().hex[:10]}.orders")


def test_a_table_that_does_not_exist_is_made_and_one_that_does_is_used(landing: Landing) -> None:
    for first in (0, 10):
        writer = landing.opened()
        tables.land(writer, first - 1, first + 4)
        tables.land(writer, first + 4, first + 9)
        assert writer.stopped == ""
        writer.close()
    icebergs.assert_in(landing.loaded(), range(20))
    report = verify(landing.path, strict=True, catalog=landing.settings())
    assert report.problems == [] and "the table has all 20 rows of log entries 1 to 4, once" in report.proven
    assert landing.loaded().location() == f"file://{landing.path}"


def land_in(place: BucketPlace | AzurePlace, catalog: dict[str, str]) -> None:
    """Two writers land 10 rows each in a store, one after the other; the table is new for the first one."""
    for first in (0, 10):
        writer = tables.writer(Path(), medium=place.bucket(), table="iceberg", catalog=catalog, split="partition")
        writer.open()
        for at in (first, first + 5):
            tables.land(writer, at - 1, at + 4, directory="t=orders/p=0/")
        assert writer.stopped == ""
        writer.close()
    report = verify("", medium=place.bucket(), strict=True, catalog=catalog)
    assert report.problems == [] and "the table has all 20 rows of log entries 1 to 4, once" in report.proven


def test_the_files_are_in_a_store(landing: Landing, moto: Moto, place_on: Callable[[S3Server], BucketPlace]) -> None:
    place = place_on(moto)
    land_in(place, landing.settings())
    access = {f"s3.{name.replace('_', '-')}": value for name, value in place.sink["store"].items() if value is not True}
    table = load_catalog("default", type="rest", uri=landing.uri, **access).load_table(landing.table)
    assert icebergs.numbers_in(table) == list(range(20))
    assert table.location() == place.url
    names = [each["file_path"].removeprefix("s3://") for each in table.inspect.files().to_pylist()]
    found = [pq.read_table(name, columns=["offset"], filesystem=s3_files(place.reading)) for name in names]
    assert Counter(number for each in found for number in each["offset"].to_pylist()) == Counter(range(20))


def test_the_files_are_in_azure(azure_place: AzurePlace, tmp_path: Path) -> None:
    """The catalog is a database, because that of the tests has no client for it."""
    catalog = icebergs.catalog(tmp_path)
    land_in(azure_place, catalog)
    account = f"AccountName={Azurite.ACCOUNT};AccountKey={Azurite.ACCOUNT_KEY}"
    service = f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={azure_place.endpoint}/{Azurite.ACCOUNT};"
    # The library's own choice for such URLs: the client of fsspec.
    theirs = SqlCatalog("default", uri=catalog["uri"], **{"adls.connection-string": service})
    table = theirs.load_table(icebergs.NAME)
    assert table.location() == f"abfss://{BUCKET}@{Azurite.ACCOUNT}.dfs.core.windows.net/{azure_place.prefix}"
    assert icebergs.numbers_in(table) == list(range(20))
    local = azure_place.local()
    names = [each["file_path"].removeprefix(table.location() + "/") for each in table.inspect.files().to_pylist()]
    found = [pq.read_table(local / name, columns=["offset"], partitioning=None) for name in names]
    assert Counter(number for each in found for number in each["offset"].to_pylist()) == Counter(range(20))


# --- who is let in

NAME, SECRET, TOKEN = "lander", "right:with-colon", "right"


class Guard:
    """Lets in, at a proxy, who has the token, or one that the catalog has given for the name and its secret."""

    def __init__(self) -> None:
        self.given = 0
        self.expired = False
        self.scopes: list[str] = []

    def __call__(self, request: Request) -> Fault:
        if request.target == "/v1/oauth/tokens":
            form = parse_qs(request.body.decode())
            self.scopes += form["scope"]
            if (form["client_id"], form["client_secret"]) != ([NAME], [SECRET]):
                return self._refusal({"error": "invalid_client", "error_description": "nobody knows this secret"})
            self.given += 1
            self.expired = False
            return NOTHING
        if request.headers.get("authorization") == f"Bearer {TOKEN}":
            return NOTHING
        given = request.headers.get("authorization") == f"Bearer client-credentials-token:sub={NAME}"
        if given and self.given and not self.expired:
            return NOTHING
        error = {"message": "the token is not valid", "type": "NotAuthorizedException", "code": 401}
        return self._refusal({"error": error})

    def _refusal(self, what: object) -> Fault:
        return Fault(status=401, content=json.dumps(what).encode())


@pytest.fixture
def proxy(rest_catalog: RestCatalog) -> Iterator[StoreProxy]:
    """A proxy before the catalog."""
    with StoreProxy(rest_catalog.port) as found:
        yield found


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ({}, {"token": TOKEN}, "UnauthorizedError: NotAuthorizedException: the token is not valid"),
        ({"token": "wrong"}, {"token": TOKEN}, "UnauthorizedError: NotAuthorizedException: the token is not valid"),
        (
            {"credential": f"{NAME}:wrong"},
            {"credential": f"{NAME}:{SECRET}"},
            "OAuthError: invalid_client: nobody knows this secret",
        ),
    ],
)
def test_who_is_not_let_in_lands_and_publishes_when_it_is(
    landing: Landing, proxy: StoreProxy, wrong: dict[str, str], right: dict[str, str], said: str
) -> None:
    proxy.fault = Guard()
    through = landing.through(proxy.endpoint)
    writer = through.opened(**wrong)
    assert rolls.end_of(tables.land(writer, -1, 4)) == 4
    assert writer.stopped == f"the Iceberg table {landing.table}: {said}"
    writer.close()
    writer = through.opened(**right)
    tables.land(writer, 4, 9)
    assert writer.stopped == ""
    icebergs.assert_in(landing.loaded(), range(10))


def test_a_token_that_has_expired_is_renewed(landing: Landing, proxy: StoreProxy) -> None:
    guard = proxy.fault = Guard()
    writer = landing.through(proxy.endpoint).opened(credential=f"{NAME}:{SECRET}", scope="PRINCIPAL_ROLE:lander")
    tables.land(writer, -1, 4)
    guard.expired = True
    tables.land(writer, 4, 9)
    assert writer.stopped == ""
    assert guard.given > 1 and {*guard.scopes} == {"PRINCIPAL_ROLE:lander"}
    icebergs.assert_in(landing.loaded(), range(10))


class Signed:
    """Lets in, at a proxy, requests with the right signature (AWS Signature Version 4) for a service and a region."""

    def __init__(self, key: tuple[str, str], token: str, region: str, service: str) -> None:
        self._key = key
        self._token = token
        self._scope = (region, service)
        self.refused: list[str] = []
        self.passed: set[str] = set()

    def __call__(self, request: Request) -> Fault:
        if why := self._wrong(request):
            self.refused.append(why)
            error = {"message": why, "type": "NotAuthorizedException", "code": 403}
            return Fault(status=403, content=json.dumps({"error": error}).encode())
        self.passed.add(request.method)
        return NOTHING

    def _wrong(self, request: Request) -> str:
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        parts = dict(part.strip().split("=", 1) for part in rest.split(",") if "=" in part)
        if scheme != "AWS4-HMAC-SHA256" or request.headers.get("x-amz-security-token") != self._token:
            return "the request is not signed"
        names = parts["SignedHeaders"].split(";")
        time = request.headers["x-amz-date"]
        scope = (time[:8], *self._scope, "aws4_request")
        if parts["Credential"] != "/".join((self._key[0], *scope)) or not {"host", "x-amz-date"} <= {*names}:
            return "the signature is for another key, or for something else"
        path, _, query = request.target.partition("?")
        canonical = "\n".join(
            (
                request.method,
                quote(path),  # it is quoted once more than it is sent
                "&".join(sorted(query.split("&"))),
                *(f"{name}:{request.headers[name].strip()}" for name in names),
                "",
                ";".join(names),
                hashlib.sha256(request.body).hexdigest(),
            )
        )
        text = "\n".join((scheme, time, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
        key = b"AWS4" + self._key[1].encode()
        for part in (*scope, text):
            key = hmac.digest(key, part.encode(), "sha256")
        return "" if hmac.compare_digest(key.hex(), parts["Signature"]) else "the signature does not match"


@pytest.mark.parametrize("wrong", [{"secret_access_key": "wrong"}, {"region": "us-east-1"}, {"sigv4": "s3"}])
def test_a_catalog_that_wants_signed_requests(landing: Landing, proxy: StoreProxy, wrong: dict[str, str]) -> None:
    guard = proxy.fault = Signed(("me", "the key"), "for now", "eu-west-1", "glue")
    right = {"sigv4": "glue", "region": "eu-west-1", "access_key_id": "me", "secret_access_key": "the key"}
    right["session_token"] = "for now"
    through = landing.through(proxy.endpoint)
    writer = through.opened(**(right | wrong))
    assert rolls.end_of(tables.land(writer, -1, 4)) == 4
    assert f"ForbiddenError: NotAuthorizedException: {guard.refused[0]}" in writer.stopped
    writer.close()
    guard.refused.clear()
    writer = through.opened(**right)
    tables.land(writer, 4, 9)
    assert writer.stopped == "" and guard.refused == [] and guard.passed == {"GET", "POST"}
    icebergs.assert_in(landing.loaded(), range(10))


def test_settings_of_the_catalog_do_not_replace_the_access_to_the_files(landing: Landing, proxy: StoreProxy) -> None:
    elsewhere = {"endpoint": "http://127.0.0.1:1", "allow_http": "true", "region": "r"}
    sent = {
        "py-io-impl": "no.such.Class",
        "fastwire.root": "s3://elsewhere/orders",
        "fastwire.location": f"file://{landing.path}",
        "fastwire.access": json.dumps(elsewhere | {"access_key_id": "them", "secret_access_key": "them"}),
    }
    answer = Fault(status=200, content=json.dumps({"defaults": {}, "overrides": sent}).encode())
    proxy.fault = lambda request: answer if request.target.startswith("/v1/config") else NOTHING
    writer = landing.through(proxy.endpoint).opened()
    for at in range(2):
        tables.land(writer, at * 5 - 1, at * 5 + 4)
        assert writer.stopped == ""
    icebergs.assert_in(landing.loaded(), range(10))


# --- what goes wrong


@pytest.mark.parametrize("fault", [Fault(lost=True), Fault(cut=True), Fault(status=503, content=b"{}")])
@pytest.mark.parametrize("change", ["", "tables/orders"], ids=["creation", "commit"])
def test_an_answer_that_is_lost_changes_nothing(landing: Landing, proxy: StoreProxy, fault: Fault, change: str) -> None:
    """The catalog has committed, or the request has not reached it: only another look at the table shows which."""
    hit: list[str] = []

    def once(request: Request) -> Fault:
        if hit or request.method != "POST" or not request.target.endswith(change or "/tables"):
            return NOTHING
        hit.append(request.target)
        return fault

    proxy.fault = once
    writer = landing.through(proxy.endpoint).opened()
    assert rolls.end_of(tables.land(writer, -1, 4)) == 4
    assert hit and landing.table in writer.stopped
    tables.land(writer, 4, 9)
    assert writer.stopped == ""
    icebergs.assert_in(landing.loaded(), range(10))


def test_two_writers_whose_answers_are_lost(landing: Landing, proxy: StoreProxy) -> None:
    """The other one finds a commit whose answer its writer has not received; neither adds the files again."""
    hit: list[str] = []

    def every_other(request: Request) -> Fault:
        if request.method != "POST" or not request.target.endswith("tables/orders"):
            return NOTHING
        hit.append(request.target)
        return Fault(lost=True) if len(hit) % 2 else NOTHING

    proxy.fault = every_other
    writers = [landing.through(proxy.endpoint).opened() for _ in range(2)]
    for at in range(8):
        writers[at % 2].refresh()
        tables.land(writers[at % 2], at * 5 - 1, at * 5 + 4)
    proxy.fault = lambda request: NOTHING
    for writer in writers:
        writer.refresh()
        assert writer.stopped == ""
    assert len(hit) >= 8
    icebergs.assert_in(landing.loaded(), range(40))


def test_a_table_without_an_answer_holds_up_no_other_of_the_catalog(landing: Landing, proxy: StoreProxy) -> None:
    through = landing.through(proxy.endpoint)
    hanging = replace(through, path=landing.path.parent / "hanging", table=landing.table.replace("orders", "hanging"))
    proxy.fault = lambda request: Fault(wait_s=60.0) if request.target.endswith("/hanging") else NOTHING
    late = icebergs.writer(hanging.path, catalog=hanging.settings(), hasty=True)
    late.open()
    writer = through.opened()
    for at in range(3):
        assert rolls.end_of(tables.land(late, at * 5 - 1, at * 5 + 4)) == at * 5 + 4
        tables.land(writer, at * 5 - 1, at * 5 + 4)
        assert late.publishing and writer.stopped == ""
    icebergs.assert_in(landing.loaded(), range(15))


def test_the_catalog_dies_while_a_daemon_lands(
    landing: Landing, rest_catalog: RestCatalog, dev_scene: Callable[..., Scene]
) -> None:
    catalog = landing.settings()
    sink = {"type": "iceberg", "table": catalog.pop("table"), "catalog": catalog}
    scene = dev_scene(sink=sink, source={"cluster": "dev"})
    scene.feed.add(20)
    with scene.run(until_end=False) as daemon:
        daemon.wait_for_rows(scene.feed.count)
        eventually(landing.has_files, "something is in the table")
        rest_catalog.stop(at_once=True)
        for _ in range(3):
            scene.feed.add(20)
            daemon.wait_for_rows(scene.feed.count)
        daemon.wait_for("the table takes no files")
        scene.wait_until_acknowledged()
        rest_catalog.start()
        scene.feed.add(20)
        daemon.wait_for_rows(scene.feed.count)
        eventually(lambda: rows(landing.loaded()) == scene.feed.count, "the backlog is in the table")
        daemon.end()
    scene.settle()
    said = verify_by_command(scene.path)
    assert said.returncode == 0, said.stdout + said.stderr
    table = landing.loaded()
    produced = Counter(range(scene.feed.count))
    assert Counter(numbers_of(table.scan(selected_fields=("value",)).to_arrow()["value"]).to_pylist()) == produced
    found = tables.rows_by_duckdb(table.metadata_location, f"CAST(decode(value[1:{DIGITS}]) AS BIGINT)", "iceberg")
    assert Counter(number for (number,) in found) == produced


def rows(table: Table) -> int:
    """The number of rows in the table, as it says itself."""
    return sum(each["record_count"] for each in table.inspect.files().to_pylist())
