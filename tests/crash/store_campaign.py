"""A campaign whose dataset is in a real object store, with accidents of the store besides."""

import time
from pathlib import Path

from tests.crash.campaign import Campaign
from tests.stores.place import BucketPlace
from tests.stores.proxy import NOTHING, Fault, Request, StoreProxy, slow_down
from tests.stores.servers import VersityGateway
from tests.support.nursery import Nursery

ONLY_OF_FOLDERS = ("disk full", "sync failed")
# Of the requests in a storm, one in so many fails.
STORM = 3


class StoreCampaign(Campaign):
    """Two daemons that reach the store through a proxy each, so that one of them can have its own accidents."""

    def __init__(
        self, kind: str, folder: Path, nursery: Nursery, seed: int, store: VersityGateway, place: BucketPlace
    ) -> None:
        self._store = store
        self._proxy = StoreProxy(store.port)
        super().__init__(kind, folder, nursery, seed, place)
        self._job.sink.update(place.through(self._proxy.endpoint).sink)
        self._prefix = place.prefix
        self._stack.enter_context(self._proxy)
        for name in ONLY_OF_FOLDERS:
            del self._accidents[name]
        self._accidents |= {
            "store killed": self._kill_store,
            "store cut": self._proxy.cut,
            "storm of errors": lambda: self._storm(Fault(status=500, code="InternalError")),
            "store throttled": lambda: self._storm(slow_down()),
            "requests lost": lambda: self._storm(Fault(cut=True)),
            "answers lost": lambda: self._storm(Fault(lost=True)),
            "requests carried out late": lambda: self._storm(Fault(late_s=self._dice.uniform(0.1, 2.0))),
            "store slow": lambda: self._storm(Fault(wait_s=0.3, rate=50_000)),
            "leases lost": self._lose_leases,
        }

    def audit(self) -> None:
        """As of any campaign, with the store in good order."""
        self._proxy.fault = lambda request: NOTHING
        super().audit()

    def _kill_store(self) -> None:
        self._store.stop(at_once=True)
        time.sleep(self._dice.uniform(0, 0.5))
        self._store.start()

    def _storm(self, fault: Fault) -> None:
        """Let ``fault`` happen to some requests, until the next storm."""

        def strike(request: Request) -> Fault:
            return fault if self._dice.randrange(STORM) == 0 else NOTHING

        self._proxy.fault = strike

    def _lose_leases(self) -> None:
        """Both daemons are taken for dead by the next one that starts."""
        self._store.age(f"{self._prefix}/_fastwire/staging/*/lock")
        self._kill()
