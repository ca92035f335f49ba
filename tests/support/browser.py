"""A headless Chromium, driven by its DevTools protocol, for tests of the page that the daemon serves."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One tab. ``refusals`` are messages of the browser about what the page may not do, and errors of its script."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""
        self.requests: list[str] = []
        self.refusals: list[str] = []

    async def read(self) -> None:
        """Take messages of the browser until it ends."""
        async for message in self._socket:
            value = json.loads(message.data)
            if "id" in value:
                self._answers.pop(value["id"]).set_result(value)
            elif value["method"] == "Network.requestWillBeSent":
                self.requests.append(value["params"]["request"]["url"])
            elif value["method"] == "Log.entryAdded" or value["method"] == "Runtime.exceptionThrown":
                self.refusals.append(json.dumps(value["params"]))

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        where = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": parameters, **where})
        async with asyncio.timeout(60):
            value = await answer
        assert "error" not in value, f"{method}: {value['error']}"
        result: dict[str, Any] = value["result"]
        return result

    async def end(self) -> None:
        """End the browser, which closes the connection."""
        self._session = ""
        await self.ask("Browser.close")

    async def open(self, url: str) -> None:
        """Open ``url`` in a new tab."""
        target = (await self.ask("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await self.ask(f"{domain}.enable")
        await self.ask("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        done = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(60):
            while not await self.run(f"Boolean({script})"):
                await asyncio.sleep(0.05)

    async def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    async def resize(self, width: int, height: int) -> None:
        """Make the viewport this large, in CSS pixels."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def prefer(self, scheme: str) -> None:
        """Prefer the colours "light" or "dark"."""
        await self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Browser]:
    """Run a browser with its files in ``profile``."""
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [
            CHROMIUM,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={profile}"),
        ],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        address = profile / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not (address.exists() and len(lines := address.read_text().split()) == 2):
                assert process.poll() is None, "the browser has ended"
                await asyncio.sleep(0.05)
        url = "ws://127.0.0.1:{}{}".format(*lines)
        async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
            browser = Browser(socket)
            reading = asyncio.create_task(browser.read())
            yield browser
            await browser.end()
            await reading
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
