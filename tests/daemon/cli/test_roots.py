"""Commands on a folder of many datasets: totals, and details of those with problems; ``check`` names each topic's."""

import asyncio
import json
from pathlib import Path

from tests.daemon.cli.program import Run
from tests.support.fanout_scene import FanOutScene, serving

TOPICS = ("audit", "shop.orders", "shop.payments")


async def landed(scene: FanOutScene) -> None:
    scene.create(*TOPICS)
    for number, topic in enumerate(TOPICS):
        scene.produce(topic, 10 + number)
    await scene.land(scene.config())


async def test_verify_tells_totals_and_the_sick(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path) as scene:
        await landed(scene)
    code, text, _ = run("verify", str(tmp_path))
    assert code == 0
    assert text.splitlines()[0] == f"{tmp_path}: 3 of 3 datasets are sound"
    assert "33 rows in 3 files" in text
    file = next((tmp_path / "audit").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    code, text, _ = run("verify", str(tmp_path))
    assert code == 1
    assert f"{tmp_path}: 2 of 3 datasets are sound" in text
    assert f"{tmp_path}/audit: 1 problem" in text
    assert "shop.orders" not in text
    code, text, _ = run("verify", "--json", str(tmp_path))
    told = json.loads(text)
    assert (code, told["datasets"], told["rows"], [each["path"] for each in told["unsound"]]) == (
        1,
        3,
        33,
        [f"{tmp_path}/audit"],
    )
    assert run("verify", str(tmp_path / "shop.orders"))[0] == 0


async def test_expire_and_dead_take_all_datasets(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path) as scene:
        await landed(scene)
    code, text, _ = run("expire", "--older", "0s", "--json", str(tmp_path))
    told = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert {Path(each["path"]).name: each["rows"] for each in told} == dict(zip(TOPICS, (10, 11, 12), strict=True))
    assert list(tmp_path.rglob("*.parquet")) == []
    assert run("dead", str(tmp_path))[:2] == (0, f"{tmp_path}: 0 dead letters, 0 rows\n")


async def test_check_names_the_dataset_of_each_topic(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path) as scene:
        await landed(scene)
        scene.create("shop_orders", "new")
        config = tmp_path / "c.toml"
        config.write_text(
            f'[pipelines.p.source]\nurl = "{scene.broker.url}"\ntopics_pattern = ".*"\n'
            'group = "g"\nstart = "earliest"\n'
            f'[pipelines.p.sink]\ntype = "parquet"\npath = "{tmp_path}/{{topic}}"\n'
        )
        code, text, _ = await asyncio.to_thread(run, "check", "--connect", str(config))
    assert code == 78
    assert f"audit lands in {tmp_path}/audit: {tmp_path}/audit is continued" in text
    assert f"new lands in {tmp_path}/new: it is new" in text
    assert "shop.orders and shop_orders have one name" in text
    assert not (tmp_path / "new").exists()
