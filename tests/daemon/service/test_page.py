"""The page for browsers: self-contained, and in a real browser live, readable, and usable by keyboard."""

import copy
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import HttpAddress
from fastwire_daemon.service import http
from fastwire_daemon.service.http import HttpServer
from fastwire_daemon.service.page import page, page_headers
from tests.support.browser import CHROMIUM, Browser, browsing
from tests.support.fake_daemon import FakeDaemon

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (Debian: apt install chromium)")

HOSTILE = "<img src=x onerror=document.title='taken'>"

# Each text that can be seen and has too little contrast with what is behind it (WCAG 2.2: 4.5, 3 for large text).
FAINT_TEXTS = """(() => {
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest("script, noscript") || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(style.color).slice(0, 3)), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(texts.currentNode.data);
  }
  return found;
})()"""
TEXT = "document.body.innerText.replace(/\\s+/g, ' ')"


# One that works, and one with every trouble there is.
PIPELINES: dict[str, Any] = {
    "orders": {
        "state": "running",
        "rows_per_s": 12_345.6,
        "bytes_per_s": 987_654.3,
        "rows_received": 1_234_567,
        "rows_committed": 1_200_000,
        "last_commit_s_ago": 7.2,
        "lag_s": 6000.0,
        "lag_history": [3, 1500, None, 1],
        "commits": 1,
        "recent_commits": [
            {
                "s_ago": 7.2,
                "rows": 1_200_000,
                "files": 2,
                "bytes": 5_000_000,
                "seconds": 0.25,
                "reason": "age",
            }
        ],
        "stages": {
            "share": {"encode": 0.75, "scan": 0.25},
            "ns_per_record": {"encode": 90.0, "scan": 30.0},
            "limit": "encode",
            "setting": "sink.writers",
        },
        "source": {
            "url": "pulsar://127.0.0.1:6650",
            "partitions": {"reading": 2},
            "connections": [{"ready": True}],
            "lag": {
                "backlog_entries": 1,
                "behind_logs": 1,
                "known_logs": 2,
                "logs": {
                    "orders 0": {
                        "backlog_entries": 1,
                        "head": "3:4",
                        "received": "3:3",
                        "cursor": None,
                        "lag_history": [1400, None, 700, 1],
                    }
                },
            },
        },
    },
    HOSTILE: {
        "state": "failed",
        "error": "the disk is gone",
        "health": "degraded",
        "degraded": ["the sink waits: disk full"],
        "dead_letters": 3,
        "dead_letter_reasons": {"Truncated": 3},
        "recreated_partitions": {"refunds 2": "another log"},
        "stopped_partitions": {"refunds 0": "refused"},
        "source": {"errors": {f"refunds {n}": "no leader" for n in range(4)}, "connections": [{"ready": False}]},
    },
}


@pytest.fixture
def provider() -> FakeDaemon:
    told = FakeDaemon(**copy.deepcopy(PIPELINES))
    told.said["peers"] = ["http://landing-2:8650/", f"https://landing-3/{HOSTILE}", "javascript:alert(1)"]
    told.said["warnings"] = [{"ts": "2026-01-02T03:04:05.678Z", "level": "warning", "event": HOSTILE, "retry_s": 2.5}]
    return told


@pytest.fixture
async def browser(provider: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Browser]:
    """A browser that shows the page of a daemon."""
    monkeypatch.setattr(http, "EVENT_S", 0.05)
    server = HttpServer(HttpAddress("127.0.0.1", 0), provider, lambda: b"")
    await server.start()
    try:
        async with browsing(tmp_path / "profile") as browser:
            await browser.open(f"http://{server.address}/")
            await browser.until("document.querySelectorAll('#pipelines section').length === 2")
            yield browser
    finally:
        await server.stop()


def test_it_names_nothing_outside_itself() -> None:
    text = page().decode()
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}, "a name, not an address"
    assert re.findall(r"""(?:src|href)=["']?([^"'\s>]*)""", text) == ["data:,", "status"]
    assert re.findall(r"""(?:EventSource|fetch|import)\(["'](.*?)["']""", text) == ["events"]
    assert "innerHTML" not in text and "document.write" not in text and "style=" not in text
    assert "'unsafe-inline'" not in page_headers()["Content-Security-Policy"]


@needs_browser
async def test_it_shows_everything_and_takes_names_for_text(browser: Browser) -> None:
    await browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    text = await browser.run(TEXT)
    for part in (
        "healthy",
        "1.2.3, process 77",
        "16.0 MB of 64.0 MB",
        "12,346 rows/s",
        "988 kB/s",
        "1 entry",
        "1 of 2 partitions behind, 2 h in time",
        "1 commit, the last 7 s ago",
        "Lag in the last 4 minutes: at most 1,500 entries",
        "since the start, 3 Truncated",
        "Limited by: encode. What helps: sink.writers",
        "encode 75 %",
        "7 s 1,200,000 2 5.0 MB 0.250 s age",
        "2 reading",
        "orders 0 1 3:4 3:3 –",
        "failed",
        "Error: the disk is gone",
        "failed, degraded",
        "Degraded: the sink waits: disk full",
        "Made again: refunds 2: another log",
        "Stopped: refunds 0: refused",
        "Trouble: refunds 0, refunds 1, refunds 2, … (4 partitions): no leader",
        f"warning 2026-01-02T03:04:05.678Z {HOSTILE} retry_s=2.5",
    ):
        assert part in text, f"{part!r} is not in {text!r}"
    drawn = await browser.run("document.querySelectorAll('section svg path')[1].getAttribute('d')")
    assert drawn == "M56,28.94h0L57,1.00M59,28.98h0", "the largest is at the top, and the unknown minute is a gap"
    drawn = await browser.run("document.querySelector('td svg path').getAttribute('d')")
    assert drawn == "M56,1.00h0M58,15.00h0L59,28.98", "the last hour of a partition"
    label = "document.querySelector('td svg').getAttribute('aria-label')"
    assert await browser.run(label) == "Backlog in the last 4 minutes: at most 1,400 entries"
    links = "[...document.querySelectorAll('#peers a')].map((each) => [each.textContent, each.href])"
    [first, other] = await browser.run(links)
    assert first == ["landing-2:8650", "http://landing-2:8650/"]
    assert other[0] == f"landing-3/{HOSTILE}" and other[1].startswith("https://landing-3/"), "and no script"
    assert await browser.run("document.title") == "healthy – fastwire"
    assert await browser.run("document.images.length") == 0
    assert [url.rpartition("/")[2] for url in browser.requests] == ["", "events"]
    assert browser.refusals == [], "of its own security policy, or errors of its script"


@needs_browser
async def test_it_searches_thousands_of_datasets_and_shows_the_unsound_first(
    browser: Browser, provider: FakeDaemon
) -> None:
    datasets: dict[str, Any] = {
        f"t{number}": {"state": "resting", "rows_committed": number, "commits": 1} for number in range(1000)
    }
    datasets["t7"] |= {"state": "degraded", "degraded": ["its disk is full"]}
    datasets[HOSTILE] = {"state": "stopped", "error": "of another cluster", "dead_letters": 2}
    states = {"resting": 999, "degraded": 1, "stopped": 1}
    provider.said["pipelines"]["orders"] |= {"datasets": datasets, "dataset_states": states}
    await browser.until("document.body.textContent.includes('1 stopped, 1 degraded, 999 resting')")
    await browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    text = await browser.run(TEXT)
    assert f"{HOSTILE} stopped 0 0 2 of another cluster t7 degraded 7 1 0 its disk is full t999 resting 999 1 0" in text
    assert "And 901 more." in text and "t500 " not in text
    first = "document.querySelector('details tbody tr').textContent"
    press = "[...document.querySelectorAll('th button')].find((each) => each.textContent === '{}').click()"
    for head, expected in (
        ("Rows", "t999resting"),
        ("Dead letters", HOSTILE),
        ("State", "t7degraded"),
        ("State", HOSTILE),
    ):
        await browser.run(press.format(head))
        assert expected in await browser.run(first), head
    await browser.run(
        "(() => { const field = document.querySelector('input[type=search]'); field.value = 'T50';"
        " field.dispatchEvent(new Event('input')); })()"
    )
    text = await browser.run(TEXT)
    assert "t509 resting" in text and "t50 resting" in text and "t7 " not in text
    await browser.resize(320, 800)
    assert await browser.run("document.scrollingElement.scrollWidth") <= 320, "the page must not scroll sideways"
    assert await browser.run(FAINT_TEXTS) == []


@needs_browser
async def test_it_is_live_and_can_be_paused(browser: Browser, provider: FakeDaemon) -> None:
    await browser.run("window.kept = document.querySelector('#pipelines h2')")
    provider.said["health"] = "not ready"
    provider.said["pipelines"]["orders"]["rows_received"] = 2_000_000
    del provider.said["pipelines"][HOSTILE]
    await browser.until("document.title.startsWith('not ready')")
    assert "2,000,000 rows" in await browser.run(TEXT)
    assert await browser.run("document.querySelectorAll('#pipelines section').length") == 1
    assert await browser.run("window.kept === document.querySelector('#pipelines h2')"), "drawn in place"
    # By keyboard: the other daemons, the button, and after it tables and lists that can scroll.
    for _ in range(3):
        await browser.press("Tab", 9)
    assert await browser.run("document.activeElement.id") == "pause"
    await browser.press(" ", 32)
    assert await browser.run("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    assert "paused" in await browser.run(TEXT)
    provider.said["health"] = "healthy"
    await browser.run("document.getElementById('pause').click()")
    await browser.until("document.title.startsWith('healthy')")
    for _ in range(2):
        await browser.press("Tab", 9)
    assert await browser.run("document.activeElement.tagName") == "SUMMARY"


@needs_browser
async def test_it_says_when_the_daemon_is_gone(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_STREAMS", 0)
    monkeypatch.setattr(FakeDaemon, "status", lambda self: 1 / 0)
    await browser.until("document.title.startsWith('no answer')")


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
async def test_it_can_be_read(browser: Browser, scheme: str, width: int) -> None:
    await browser.resize(width, 800)
    await browser.prefer(scheme)
    await browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert await browser.run("document.scrollingElement.scrollWidth") <= width, "the page must not scroll sideways"
    assert await browser.run(FAINT_TEXTS) == []
    dark = await browser.run("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).every((v) => v < 64)")
    assert dark == (scheme == "dark")


@needs_browser
async def test_a_screen_reader_finds_names(browser: Browser) -> None:
    await browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    nodes = (await browser.ask("Accessibility.getFullAXTree"))["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    for role in ("button", "heading", "region", "progressbar", "table", "image", "columnheader"):
        assert named[role] and all(named[role]), f"{role} without a name: {named[role]}"
    assert {"fastwire", "Memory", "orders", HOSTILE, "Last warnings of the log"} <= set(named["heading"])
    assert "orders: last commits" in named["region"] and "orders: partitions" in named["region"]
    assert any(name.startswith("Rows a second in the last ") for name in named["image"])
    assert {"status", "main", "banner"} <= named.keys()
