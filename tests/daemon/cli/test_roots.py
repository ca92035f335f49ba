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


async def test_erase_takes_all_datasets(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path) as scene:
        await landed(scene)
        kept = scene.produced["shop.orders"].total() - 1
    value = next(iter(scene.produced["shop.orders"]))[1].decode()
    where = "--where", f"value = '{value}'"
    code, text, _ = run("erase", str(tmp_path), *where, "--dry-run")
    assert (code, text.splitlines()[0]) == (0, f"{tmp_path}: 1 row would be erased, in 1 of 3 datasets")
    assert f"{tmp_path}/shop.orders: 1 row would be erased from 1 file, of 1 looked into" in text
    assert "audit" not in text
    code, text, _ = run("erase", str(tmp_path), *where, "--json")
    told = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert {Path(each["path"]).name: each["rows"] for each in told} == dict(zip(TOPICS, (0, 1, 0), strict=True))
    assert scene.landed("shop.orders").total() == kept
    code, _, err = run("erase", str(tmp_path), "--where", "valeu = 'x'")
    assert code and "no file of a dataset has all columns" in err


async def test_a_damaged_dataset_holds_up_no_other(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path) as scene:
        await landed(scene)
    (tmp_path / "audit" / "_fastwire" / "dataset.json").write_text("{")
    bad, rest = f"{tmp_path}/audit", {"shop.orders", "shop.payments"}
    for command in (["expire", "--older", "9d"], ["erase", "--where", "value = 'x'"]):
        code, text, _ = run(*command, "--json", str(tmp_path))
        told = [json.loads(line) for line in text.splitlines()]
        assert (code, {Path(each["path"]).name for each in told if "error" not in each}) == (1, rest)
        assert [each["path"] for each in told if "error" in each] == [bad]
        code, _, err = run(*command, str(tmp_path))
        assert code == 1 and bad in err
    code, text, _ = run("verify", "--json", str(tmp_path))
    told = json.loads(text)
    assert (code, told["datasets"], told["rows"], [each["path"] for each in told["unsound"]]) == (1, 3, 23, [bad])
    code, text, err = run("dead", str(tmp_path))
    assert code == 1 and "0 dead letters" in text and bad in err


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
