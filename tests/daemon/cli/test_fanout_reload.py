"""A reload of a daemon with a dataset for each topic: topics and names are added, and each record lands once."""

import signal
import subprocess
from pathlib import Path

from tests.daemon.cli.program import PROGRAM
from tests.support.fanout_scene import serving
from tests.support.waiting import eventually

CONFIG = """\
[daemon]
http = ""
reload = "signal"
[pipelines.p.source]
url = "{url}"
topics_pattern = "{pattern}"
group = "g"
start = "earliest"
metadata_max_age = "200ms"
[pipelines.p.sink]
type = "parquet"
path = "{root}/{{topic}}"
names = {{ {names} }}
roll = {{ age = "200ms", idle = "100ms" }}
"""


def test_a_reload_adds_topics_and_names(tmp_path: Path) -> None:
    root, config, log = tmp_path / "lake", tmp_path / "c.toml", tmp_path / "log"
    with serving("kafka", root) as scene:

        def written(pattern: str, names: str = "") -> None:
            config.write_text(CONFIG.format(url=scene.broker.url, pattern=pattern, root=root, names=names))

        def feed(*topics: str) -> None:
            for topic in topics:
                scene.produce(topic, 20)
                scene.produce(topic, 10, partition=1)

        def said(text: str) -> bool:
            return text in log.read_text()

        def whole(*topics: str) -> None:
            eventually(lambda: scene.whole(*topics), "the records of the topics", log.read_text)

        scene.create("shop.orders", "shop.refunds", "audit")
        feed("shop.orders", "shop.refunds", "audit")
        written(r"shop\\..*")
        with log.open("w") as output:
            daemon = subprocess.Popen([*PROGRAM, "run", str(config)], stderr=output)
        try:
            whole("shop.orders", "shop.refunds")
            assert not (root / "audit").exists()

            written(r"shop\\..*", '"shop.orders" = "../x"')
            daemon.send_signal(signal.SIGHUP)
            eventually(lambda: said("the old one stays in force"), "a refusal", log.read_text)
            feed("shop.orders")
            whole("shop.orders", "shop.refunds")

            written(r"shop\\..*|audit", 'audit = "trail"')
            daemon.send_signal(signal.SIGHUP)
            eventually(lambda: said("configuration reloaded"), "a reload", log.read_text)
            feed("shop.orders", "shop.refunds", "audit")
            whole("shop.orders", "shop.refunds")
            trail = scene.produced["audit"]
            eventually(lambda: scene.landed("audit", "trail") == trail, "the new topic", log.read_text)
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0, log.read_text()
        finally:
            daemon.kill()
            daemon.wait()
        assert sorted(each.name for each in root.iterdir()) == ["shop.orders", "shop.refunds", "trail"]
        scene.assert_whole("shop.orders", "shop.refunds")
