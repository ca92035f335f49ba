"""Object stores for tests: started when the first test asks, stopped when the run ends."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers.fixtures import alive, running
from tests.stores.catalog import RestCatalog
from tests.stores.place import AzurePlace, BucketPlace
from tests.stores.servers import Azurite, Moto, S3Server, VersityGateway


@pytest.fixture(scope="session")
def _versity_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    yield from running(VersityGateway(tmp_path_factory.mktemp("versity")))


@pytest.fixture(scope="session")
def _moto_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    yield from running(Moto(tmp_path_factory.mktemp("moto")))


@pytest.fixture(scope="session")
def _azurite_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    yield from running(Azurite(tmp_path_factory.mktemp("azurite")))


@pytest.fixture(scope="session")
def _catalog_session(tmp_path_factory: pytest.TempPathFactory, _moto_session: Moto) -> Iterator[RestCatalog]:
    yield from running(RestCatalog(tmp_path_factory.mktemp("catalog"), _moto_session.endpoint))


@pytest.fixture
def versity(_versity_session: VersityGateway) -> VersityGateway:
    """A store with S3's protocol that keeps everything on disk; alive, whatever the test before did to it."""
    return alive(_versity_session)


@pytest.fixture
def moto(_moto_session: Moto) -> Moto:
    """A store with S3's protocol in memory."""
    return alive(_moto_session)


@pytest.fixture
def rest_catalog(_catalog_session: RestCatalog) -> RestCatalog:
    """A catalog of Iceberg's REST protocol; it also reaches the files in ``moto``."""
    return alive(_catalog_session)


@pytest.fixture
def place_on(tmp_path: Path) -> Callable[[S3Server], BucketPlace]:
    """A function that makes an empty place for a dataset on a server."""
    return lambda server: BucketPlace(server.endpoint, f"orders-{uuid.uuid4().hex[:10]}", tmp_path)


@pytest.fixture
def azure_place(_azurite_session: Azurite, tmp_path: Path) -> AzurePlace:
    """An empty place for a dataset in a store with Azure's protocol."""
    return AzurePlace(_azurite_session.endpoint, f"orders-{uuid.uuid4().hex[:10]}", tmp_path)
