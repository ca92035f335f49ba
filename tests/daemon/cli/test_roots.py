"""Commands on a folder of many datasets: totals, and details of those with problems; ``check`` names each topic's."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import typer

import fastwire_daemon.config as configuration
from fastwire_daemon.cli import retry
from fastwire_daemon.cli.dead import replay
from fastwire_daemon.cli.roots import Each, show_all_expired
from fastwire_daemon.config import parse_config
from fastwire_daemon.dataset.expiry import Expired
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.server import running
from tests.daemon.cli.program import Run
from tests.support.fanout_scene import FanOutScene, serving
from tests.support.schema_registry import serving as registry_serving

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


async def test_the_configuration_is_read_once_for_all_datasets(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving("kafka", tmp_path / "lake") as scene:
        await landed(scene)
        (tmp_path / "c.toml").write_text(scene.text())
    read: list[Path] = []
    load = configuration.load_config

    def noted(path: Path) -> configuration.Config:
        read.append(path)
        return load(path)

    monkeypatch.setattr(configuration, "load_config", noted)
    code, text, _ = run("verify", str(tmp_path / "lake"), "--config", str(tmp_path / "c.toml"))
    assert (code, len(read)) == (0, 1), text


async def test_expire_and_dead_take_all_datasets(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path) as scene:
        await landed(scene)
    code, text, _ = run("expire", "--older", "30d", str(tmp_path))
    assert (code, text) == (0, f"{tmp_path}: 0 rows in 0 files expired, in 0 of 3 datasets\n")
    code, text, _ = run("expire", "--older", "0s", "--dry-run", str(tmp_path))
    assert text.splitlines()[0] == f"{tmp_path}: 33 rows in 3 files would expire, in 3 of 3 datasets"
    assert text.splitlines()[1].startswith(f"{tmp_path}/audit: ")
    code, text, _ = run("expire", "--older", "0s", "--json", str(tmp_path))
    told = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert {Path(each["path"]).name: each["rows"] for each in told} == dict(zip(TOPICS, (10, 11, 12), strict=True))
    assert list(tmp_path.rglob("*.parquet")) == []
    assert run("dead", str(tmp_path))[:2] == (0, f"{tmp_path}: 0 dead letters, 0 rows\n")


async def landed_as_letters(scene: FanOutScene, folder: Path, *topics: str) -> None:
    """Land the records of the topics by a schema that none of them fits."""
    (folder / "s.avsc").write_text('{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}')
    decode = f'[pipelines.p.decode]\nformat = "json"\nschema = "{folder}/s.avsc"\n'
    scene.create(*topics, "fine")
    for number, topic in enumerate(topics):
        scene.produce(topic, 10 + number)
    scene.broker.produce("fine", [b'{"id": 1}'])
    await scene.land(parse_config(decode + scene.text(*topics, "fine")).pipelines["p"])


async def test_letters_of_all_datasets_are_written_back(tmp_path: Path, run: Run) -> None:
    with running(KafkaDevBroker()) as broker:
        scene = FanOutScene("kafka", broker, tmp_path / "lake")
        await landed_as_letters(scene, tmp_path, *TOPICS)
        scene.create("all", partitions=1)
        description = scene.root / "shop.payments" / "_fastwire" / "dataset.json"
        kept = description.read_text()
        description.write_text("{")
        wanted = ("dead", str(scene.root), "--replay", broker.url, "{topic}-mended")
        code, text, err = await asyncio.to_thread(run, *wanted)
        assert (code, f"{scene.root}/shop.payments: " in err) == (1, True), err
        assert text == f"{scene.root}: 21 dead letters of 2 of 4 datasets written to {{topic}}-mended and marked\n"
        assert (broker.ends("audit-mended"), broker.ends("shop.orders-mended")) == ([10], [11])
        description.write_text(kept)
        code, text, _ = await asyncio.to_thread(run, *wanted, "--json")
        assert (code, json.loads(text)["replayed"], broker.ends("shop.payments-mended")) == (0, 12, [12])
        code, text, _ = await asyncio.to_thread(run, *wanted[:-1], "all")
        assert (code, broker.ends("all")) == (0, [0])
        assert text == f"{scene.root}: 0 dead letters of 0 of 4 datasets written to all and marked\n"


async def test_a_name_that_no_topic_can_have_holds_up_no_other_dataset(tmp_path: Path, run: Run) -> None:
    with running(KafkaDevBroker()) as broker:
        scene = FanOutScene("kafka", broker, tmp_path / "lake")
        await landed_as_letters(scene, tmp_path, "a" * 245, "b")
        wanted = ("dead", str(scene.root), "--replay", broker.url, "{topic}-mended")
        code, text, err = await asyncio.to_thread(run, *wanted)
        assert (code, broker.ends("b-mended")) == (1, [11])
        assert text.startswith(f"{scene.root}: 11 dead letters of 1 of 3 datasets written to ")
        assert f"{'a' * 245}-mended': a name has up to 249 letters" in err


async def test_a_broker_that_is_away_is_waited_for_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[object] = []

    def noting(open_: Callable[[], Awaitable[object]]) -> Awaitable[object]:
        waited.append(open_)
        return retry.open_when_up(open_)

    with serving("tank", tmp_path / "lake") as scene:
        await landed_as_letters(scene, tmp_path, "a", "b")
    monkeypatch.setattr(retry, "PATIENCE_S", 0.05)
    monkeypatch.setattr(replay, "open_when_up", noting)
    code, _, err = await asyncio.to_thread(run, "dead", str(scene.root), "--replay", scene.broker.url, "all")
    assert (code, len(waited)) == (1, 1)
    assert err.splitlines()[-1].startswith(f"2 datasets, such as {scene.root}/a, {scene.root}/b: ")


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


def checked(run: Run, scene: FanOutScene, config: Path, *options: str) -> "asyncio.Future[tuple[int, str, str]]":
    """Run ``check --connect`` on the topics of the scene."""
    text = scene.text(group="g").replace('subscription = "landing"\n', "")
    config.write_text(text if not config.exists() else config.read_text() + text)
    return asyncio.ensure_future(asyncio.to_thread(run, "check", "--connect", *options, str(config)))


def test_many_datasets_that_fail_are_told_by_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(place: str, bucket: Bucket | None) -> list[str]:
        number = int(place.rpartition("/")[2])
        raise OSError(f"{place} is a table" if number < 970 else f"{place}: damage {number}")

    datasets = Each([(f"/l/{number}", None) for number in range(1000)])
    assert list(datasets.results(refuse)) == []
    with pytest.raises(typer.Exit):
        datasets.end(as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["970 datasets, such as /l/0, /l/1, /l/2: it is a table", "/l/970: /l/970: damage 970"]
    assert (len(lines), lines[20]) == (21, "and 11 more: --json names all")
    with pytest.raises(typer.Exit):
        datasets.end(as_json=True)
    assert len(capsys.readouterr().out.splitlines()) == 1000


def test_of_many_datasets_that_expire_the_first_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Expired(f"/l/{number}", entries=1, files=1, rows=2, deleted=1) for number in range(1000)]
    show_all_expired("/l", found, dry_run=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "/l: 2,000 rows in 1,000 files expired, in 1,000 of 1,000 datasets"
    assert (len(lines), lines[-1]) == (1 + 40 + 1, "and 980 more: --json names all")


def test_a_store_that_gives_no_access(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the program, and says what helps."""

    def refused(self: Bucket, name: str) -> None:
        raise OSError("there are no credentials")

    monkeypatch.setattr(Bucket, "head", refused)
    helps = "With --config FILE the access is that of the pipeline that writes there"
    for command in (["verify"], ["dead"], ["expire", "--older", "9d"], ["erase", "--where", "value = 'x'"]):
        assert run(*command, "s3://lake") == (1, "", f"s3://lake: there are no credentials. {helps}\n"), command


async def test_check_names_the_dataset_of_each_topic(tmp_path: Path, run: Run) -> None:
    with serving("kafka", tmp_path / "lake") as scene:
        await landed(scene)
        scene.create("shop_orders", "new")
        code, text, _ = await checked(run, scene, tmp_path / "c.toml")
    root = scene.root
    assert code == 78
    told = [line.removeprefix("  ") for line in text.splitlines() if line.startswith("  dataset")]
    why = "for some stores and catalogs this is also the name of shop.orders, which lands: set sink.names"
    assert told[0] == "datasets 5 topics with 10 partitions: 4 can land, 1 cannot"
    assert told[1] == f"dataset  FAILED: shop_orders lands in {root}/shop_orders: {why}"
    assert told[2].startswith(f"dataset  audit lands in {root}/audit: {root}/audit is continued; it was created ")
    assert told[4].startswith(f"dataset  shop.orders lands in {root}/shop.orders: {root}/shop.orders is continued")
    assert told[3] == (
        f"dataset  new lands in {root}/new: it is new; columns "
        "key, value, topic, partition, offset, timestamp, timestampType, headers"
    )
    assert not (root / "new").exists()
    assert "  topic " not in text


async def test_check_knows_which_of_topics_with_one_name_lands(tmp_path: Path, run: Run) -> None:
    """The one whose dataset exists, as in a run, else the first by the alphabet."""
    with serving("kafka", tmp_path / "lake") as scene:
        scene.create("shop_orders")
        scene.produce("shop_orders", 3)
        await scene.land(scene.config())
        scene.create("shop.orders", "a-b", "a.b")
        _, text, _ = await checked(run, scene, tmp_path / "c.toml")
    refused = [line.partition(" FAILED: ")[2].partition(" lands")[0] for line in text.splitlines() if "FAILED" in line]
    assert refused == ["a.b", "shop.orders"]


async def test_check_names_the_columns_of_inferred_datasets_that_exist(tmp_path: Path, run: Run) -> None:
    decode = '[pipelines.p.decode]\nformat = "json"\nschema = "infer"\ncolumns = ["*", "_offset"]\n'
    (tmp_path / "c.toml").write_text(decode)
    with serving("kafka", tmp_path / "lake") as scene:
        _, none, _ = await checked(run, scene, tmp_path / "c.toml")
        scene.create("old", "some", partitions=1)
        for topic in ("old", "some"):
            scene.broker.produce(topic, [b'{"id": 1}'])
        config = parse_config(decode + scene.text()).pipelines["p"]
        await scene.land(config)
        scene.broker.produce("old", [b'{"id": 2, "name": "Ada"}', b"none"])
        await scene.land(config)
        scene.create("new", partitions=1)
        (tmp_path / "c.toml").write_text(decode)
        _, text, _ = await checked(run, scene, tmp_path / "c.toml")
        _, verified, _ = await asyncio.to_thread(run, "verify", str(scene.root))
    assert verified.splitlines()[2] == "  1 dead letter"
    assert "no topic matches" in none and "  decode  " not in none
    told = [line.rpartition("; ")[2] for line in text.splitlines() if line.startswith("  dataset  ")]
    assert told == [
        "columns the fields of its first records, _offset",
        "columns _offset, id int64, name string",
        "columns _offset, id int64",
    ]
    assert ", folders of their own for each topic\n" in text


async def test_check_names_the_columns_that_a_registry_has_for_each_topic(tmp_path: Path, run: Run) -> None:
    config = tmp_path / "c.toml"
    with serving("kafka", tmp_path / "lake") as scene, registry_serving() as registry:
        scene.create("orders", "other", "late", partitions=1)
        registry.newest("orders-value", 1, {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
        registry.register(2, {"type": "record", "name": "o", "fields": [{"name": "name", "type": "string"}]})
        scene.broker.produce("other", [b"\0\0\0\0\2\6Ada"])
        decode = f'[pipelines.p.decode]\nformat = "avro"\nregistry = {{ url = "{registry.url}" }}\n'
        config.write_text(f'{decode}columns = ["*", "_offset"]\n')
        code, text, _ = await checked(run, scene, config)
        config.write_text(decode + scene.text("orders", group="g").replace('subscription = "landing"\n', ""))
        config.write_text(config.read_text().replace("/{topic}", "/one"))
        _, one, _ = await asyncio.to_thread(run, "check", "--connect", str(config))
    told = [line.removeprefix("  dataset  ") for line in text.splitlines() if line.startswith("  dataset  ")]
    assert code == 0
    assert told[0] == f"late lands in {scene.root}/late: it is new; columns the fields of its first records"
    assert told[1] == f"orders lands in {scene.root}/orders: it is new; columns _offset, id int64"
    assert told[2] == f"other lands in {scene.root}/other: it is new; columns _offset, name string"
    assert "  decode   columns id int64\n" in one


async def test_check_tells_of_many_topics_the_first_and_the_sick(tmp_path: Path, run: Run) -> None:
    (tmp_path / "schemas").mkdir()
    names = [f"t{number:02}" for number in range(50)]
    fields = [{"name": f"f{number}", "type": "long"} for number in range(12)]
    for name in names[2:]:
        (tmp_path / "schemas" / f"{name}.avsc").write_text(
            json.dumps({"type": "record", "name": "r", "fields": fields})
        )
    config = tmp_path / "c.toml"
    decode = f'[pipelines.p.decode]\nformat = "json"\nschema = "{tmp_path}/schemas/{{topic}}.avsc"\n'
    with serving("kafka", tmp_path / "lake") as scene:
        scene.create(*names, partitions=1)
        scene.broker.produce("t02", [b"[]"])
        config.write_text(decode)
        code, text, _ = await checked(run, scene, config)
        config.write_text(decode)
        _, whole, _ = await checked(run, scene, config, "--all")
    assert code == 78
    told = [line for line in text.splitlines() if line.startswith("  dataset")]
    assert told[0] == "  datasets 50 topics with 50 partitions: 48 can land, 2 cannot"
    missing = "decode.schema: cannot read {}/schemas/{}.avsc: No such file or directory"
    assert told[1:3] == [f"  dataset  FAILED: {name}: {missing.format(tmp_path, name)}" for name in names[:2]]
    longs = ", ".join(f"f{number} int64 not null" for number in range(8))
    assert told[3] == f"  dataset  t02 lands in {scene.root}/t02: it is new; columns {longs}, 4 more"
    assert len(told) == 1 + 2 + 20 + 1
    assert told[-1] == "  dataset  and 28 more: --all tells them"
    decoded = [line for line in text.splitlines() if line.startswith("  decode")]
    assert decoded[0] == "  decode   all first records of 17 of the 20 topics that were tried can be decoded"
    assert decoded[-1].startswith("  decode   FAILED: t02: 0 of its first 1 records can be decoded; ")
    assert sum(line.startswith("  dataset ") for line in whole.splitlines()) == 50
