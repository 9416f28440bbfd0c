"""The page in a real browser: drawn, quiet, within its width, deaf to hostile text, and offline."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft.measurement import Measurement, write_measurements
from lingraft.report import live, write_report
from lingraft.report.comparison import compare_runs, write_comparison
from lingraft.report.live import LiveServer, open_server

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe"
)

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(
        BINARY is None,
        reason="no chromium or chrome: that charts draw, the page fits 400 and 1600 px, hostile text stays text, and "
        "nothing is fetched were NOT checked in a browser",
    ),
]


class Browser:
    """Chromium's DevTools protocol over two pipes: its file 3 takes requests, its file 4 gives answers."""

    def __init__(self, profile: Path) -> None:
        read_by_it, self._out = os.pipe()
        self._in, written_by_it = os.pipe()
        ends = (read_by_it, written_by_it)
        # Chromium wants files 3 and 4; by way of two high numbers, so that neither overwrites the other.
        move = (
            "import os, sys; r, w = int(sys.argv[1]), int(sys.argv[2]); os.dup2(r, 98); os.dup2(w, 99); "
            "os.dup2(98, 3); os.dup2(99, 4); os.execv(sys.argv[3], sys.argv[3:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", move, *map(str, ends), str(BINARY), *SWITCHES.split(),
             f"--user-data-dir={profile}"],
            pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in ends:
            os.close(end)
        self._buffer, self._number, self.events = b"", 0, []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def show(self, page: Path | str, width: int = 1200, theme: str = "light") -> None:
        """Open a page, by its file or its address, and wait until its charts are drawn."""
        self.events.clear()
        self.resize(width)
        self.theme(theme)
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        self.wait_for(f"document.documentElement?.dataset.charts === '{theme}' && document.readyState === 'complete'")

    def resize(self, width: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def theme(self, theme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def wait_for(self, condition: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"not within {seconds} s: {condition}; {self.complaints()}"
            time.sleep(0.05)

    def complaints(self) -> list[Any]:
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event["params"] for event in self.events if event.get("method") in kinds]

    def requested(self) -> list[str]:
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self._session = None
            self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        self._process.wait(timeout=20)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([finished_run], tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def two_runs(finished_run: Path, other_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([finished_run, other_run], tmp_path_factory.mktemp("page") / "report.html")


UNDRAWN = """[...document.querySelectorAll('[data-figure]')].filter(box => !box.querySelector(
    'svg .scatterlayer path.js-line, svg .barlayer path, svg .scatterlayer path.point, svg .heatmaplayer image'
    )).map(box => box.ariaLabel)"""
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


def test_every_chart_is_drawn_and_nothing_complains_or_is_fetched(browser: Browser, page: Path) -> None:
    browser.show(page)
    assert browser.evaluate("document.querySelectorAll('[data-figure]').length") >= 9
    assert browser.evaluate(UNDRAWN) == []
    assert browser.complaints() == []
    assert browser.requested() == [page.as_uri()]


@pytest.mark.parametrize("width", [400, 1600])
def test_one_run_fits_the_width(browser: Browser, page: Path, width: int) -> None:
    browser.show(page, width)
    assert browser.evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("width", [400, 1600])
def test_two_runs_fit_the_width_and_overlay(browser: Browser, two_runs: Path, width: int) -> None:
    browser.show(two_runs, width)
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.evaluate(UNDRAWN) == []
    legend = browser.evaluate("document.querySelector('#bits-per-byte .legend').textContent")
    assert "finished" in legend
    assert "no-replay" in legend
    assert browser.complaints() == []


def test_runs_with_everything_measured_are_drawn_and_fit(
    browser: Browser, everything_run: Path, finished_run: Path, tmp_path: Path
) -> None:
    for runs in ([everything_run], [finished_run, everything_run]):
        page = write_report(runs, tmp_path / "report.html")
        for width in (400, 1600):
            browser.show(page, width)
            assert browser.evaluate(OVERFLOW) <= 0
            assert browser.evaluate(UNDRAWN) == []
            assert browser.complaints() == []
    assert browser.evaluate("document.querySelectorAll('#shift .heatmaplayer image').length") == 1


def test_pointing_at_a_chart_shows_its_value(browser: Browser, page: Path) -> None:
    browser.show(page)
    box = browser.evaluate("""(() => { const plot = document.querySelector('.chart .nsewdrag');
        plot.scrollIntoView({block: 'center', behavior: 'instant'}); const r = plot.getBoundingClientRect();
        return [r.left + r.width / 2, r.top + r.height / 2]; })()""")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    browser.wait_for("document.querySelector('.chart .hoverlayer').textContent.includes('[')")
    assert "base model : 1.900" in browser.evaluate("document.querySelector('.chart .hoverlayer').textContent")


def test_charts_follow_the_theme(browser: Browser, page: Path) -> None:
    browser.show(page, theme="light")
    ink = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    light = browser.evaluate(ink)
    browser.theme("dark")
    browser.wait_for("document.documentElement.dataset.charts === 'dark'")
    assert browser.evaluate(ink) != light
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 22, 26)"


def test_hostile_text_stays_text(browser: Browser, hostile_run: Path, tmp_path: Path) -> None:
    page = write_report([hostile_run], tmp_path / "report.html")
    browser.show(page, 400)
    browser.evaluate("""document.querySelectorAll('details').forEach(d => d.open = true);
        document.querySelectorAll('*').forEach(e => e.dispatchEvent(new MouseEvent('mouseover')))""")
    assert browser.evaluate("window.hostile === undefined")
    assert browser.evaluate("document.scripts.length") == 3
    assert browser.evaluate("document.querySelectorAll('img, iframe, a[href^=javascript], [onmouseover]').length") == 0
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.complaints() == []
    assert browser.requested() == [page.as_uri()]


def test_an_injected_script_would_be_blocked(browser: Browser, page: Path, tmp_path: Path) -> None:
    """The second wall: were an escape ever forgotten, the policy still stops the script."""
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text("utf-8").replace("</main>", "<script>window.hostile = 9</script></main>"), "utf-8")
    browser.show(broken)
    assert browser.evaluate("window.hostile === undefined")


def test_an_unfinished_run_gives_a_page(browser: Browser, unfinished_run: Path, tmp_path: Path) -> None:
    page = write_report([unfinished_run], tmp_path / "report.html")
    browser.show(page, 400)
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.complaints() == []


def test_right_to_left_text_is_laid_out_right_to_left(browser: Browser, page: Path) -> None:
    browser.show(page)
    direction: Callable[[int], Any] = lambda n: browser.evaluate(  # noqa: E731
        f"getComputedStyle(document.querySelectorAll('.sample')[{n}].querySelectorAll('.said')[1]).direction"
    )
    assert [direction(0), direction(1)] == ["ltr", "rtl"]


def test_printing_shows_light_charts_and_no_navigation(browser: Browser, page: Path) -> None:
    browser.show(page, theme="dark")
    browser.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    browser.wait_for("document.documentElement.dataset.charts === 'light'")
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert (
        browser.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor") == "rgb(255, 255, 255)"
    )
    browser.call("Emulation.setEmulatedMedia", media="")


# The comparison page ----------------------------------------------------------------------------------------------------

HOSTILE_ARM = "<img src=x onerror=window.hostile=1>\u202e\x1b[31m $x {y} %{z}"


@pytest.fixture(scope="module")
def comparison(write_arm: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six arms: two seeds, averaged weights, one that costs too much, one called hostile things, one that failed."""
    place = tmp_path_factory.mktemp("arms")
    arms = [
        write_arm(place / "replay-20_seed-0", 1.50, 1.00, noise=1, seed=0),
        write_arm(place / "replay-20_seed-1", 1.51, 1.01, noise=2, seed=1),
        write_arm(place / "no-replay", 1.45, 1.20, 12, noise=3, stage={"mix": {"eu": 1.0}}),
        write_arm(place / HOSTILE_ARM, 1.52, 1.02, noise=4, averaged=1.505, stage={"lr": {"peak": 3e-5}}),
        write_arm(place / "other-text", 1.4, 1.0, text="2b", stage={"tokens": 40_960}),
    ]
    failed = {"too-fast": f"loss is not finite {HOSTILE_ARM} <script>window.hostile = 2</script>"}
    found = compare_runs(arms, failed=failed)
    return write_comparison(found, tmp_path_factory.mktemp("page") / "compare.html", title=f"sweep {HOSTILE_ARM}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_a_comparison_is_drawn_and_fits_and_complains_of_nothing(
    browser: Browser, comparison: Path, width: int, theme: str
) -> None:
    browser.show(comparison, width, theme)
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.evaluate(UNDRAWN) == []
    assert browser.complaints() == []
    assert browser.requested() == [comparison.as_uri()]
    points = "document.querySelectorAll('#trade .scatterlayer path.point').length"
    assert browser.evaluate(points) == 4
    text = browser.evaluate("document.querySelector('main').textContent")
    assert "Ship “" in text
    assert "other-text" in text


def test_hostile_names_of_arms_stay_text(browser: Browser, comparison: Path) -> None:
    browser.show(comparison, 400)
    browser.evaluate("""document.querySelectorAll('details').forEach(d => d.open = true);
        document.querySelectorAll('*').forEach(e => e.dispatchEvent(new MouseEvent('mouseover')))""")
    assert browser.evaluate("window.hostile === undefined && document.scripts.length === 3")
    assert browser.evaluate("document.querySelectorAll('img, iframe, [onerror]').length") == 0
    assert browser.evaluate(OVERFLOW) <= 0
    assert browser.evaluate("document.querySelector('#trade .legend').textContent").count("<img src=x") >= 1
    assert browser.complaints() == []


def test_a_comparison_is_reached_by_keyboard_alone(browser: Browser, comparison: Path) -> None:
    """Tab goes over the skip link, the contents, tables that scroll and what can be opened; nothing holds it."""
    browser.show(comparison, 400)
    seen = []
    for _ in range(40):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        seen.append(browser.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent"))
        if seen[-1].startswith("Table: Options"):
            break
    assert seen[0] == "Skip to the report"
    for stop in (
        "Which to ship",
        "How to read this",
        "Numbers",
        "Table: Base model and arms",
        "Table: Against",
    ):
        assert any(text.startswith(stop) for text in seen), (stop, seen)


def test_a_comparison_is_printed_in_light_colours_with_all_of_its_tables(browser: Browser, comparison: Path) -> None:
    browser.show(comparison, 1000, "dark")
    browser.call("Emulation.setEmulatedMedia", media="print",
                 features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    browser.wait_for("document.documentElement.dataset.charts === 'light'")
    hidden = "[...document.querySelectorAll('.scroll')].filter(a => a.checkVisibility() && a.scrollHeight > a.clientHeight + 1)"
    assert browser.evaluate(f"{hidden}.length") == 0
    assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000
    browser.call("Emulation.setEmulatedMedia", media="")


# The live page ---------------------------------------------------------------------------------------------------------


LAST_POINT = "document.querySelector('#bits-per-byte [data-figure]').data.at(-2).x.at(-1)"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a live page be made again as often as it changes."""
    monkeypatch.setattr(live, "_SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(live, "_SHARE_OF_A_CORE", 1e9)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[LiveServer]:
    with open_server([folder], port=0) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield server
        finally:
            server.shutdown()


def test_a_live_page_shows_a_new_point_and_leaves_the_reader_where_he_was(
    browser: Browser, unfinished_run: Path, at_once: None
) -> None:
    """No reload: the place, an open part, its scrolling, keyboard focus and a zoomed chart outlive the new point."""
    rows = [Measurement("embeddings-only", 6144, "bits_per_byte", 1.111, "eu", 1.08, 1.14, 180),
            Measurement("embeddings-only", 6144, "tokens_per_second", 256.0)]  # fmt: skip
    top = "document.querySelector('#icl').getBoundingClientRect().top"
    with served(unfinished_run) as server:
        browser.show(server.url, 1000)
        browser.evaluate("""window.mark = 1; const fold = document.querySelector('#recipe details');
            fold.open = true; fold.querySelector('pre').scrollTop = 90; fold.firstElementChild.focus();
            Plotly.relayout(document.querySelector('#training [data-figure]'), {'xaxis.range': [0, 3000]});
            document.querySelector('#icl').scrollIntoView({behavior: 'instant'}); null""")
        before, was = browser.evaluate(LAST_POINT), browser.evaluate(top)
        assert browser.evaluate("window.scrollY") > 500
        write_measurements(unfinished_run / "measurements.jsonl", rows)
        browser.wait_for(f"{LAST_POINT} === 6144 && document.body.textContent.includes('1.111')")
        assert before == 4096
        assert browser.evaluate("window.mark") == 1
        assert abs(browser.evaluate(top) - was) < 2
        kept = browser.evaluate("""(() => { const fold = document.querySelector('#recipe details');
            return [fold.open, fold.querySelector('pre').scrollTop, document.activeElement ===
            fold.firstElementChild, document.querySelector('#training [data-figure]').layout.xaxis.range]; })()""")
        assert kept == [True, 90, True, [0, 3000]]
        assert "step 6 of 20" in browser.evaluate("document.querySelector('#moments').textContent")
        assert browser.complaints() == []
        assert {url.removeprefix(server.url) for url in browser.requested()} == {"", "state.json", "content.json"}
        for width in (400, 1600):
            browser.resize(width)
            assert browser.evaluate(OVERFLOW) <= 0
    browser.wait_for("document.querySelector('#told').textContent.includes('No answer from lingraft report --live')")
    browser.call("Page.navigate", url="about:blank")


def test_a_live_page_waits_for_its_run_and_takes_hostile_text_for_text(
    browser: Browser, hostile_run: Path, unfinished_run: Path, tmp_path: Path, at_once: None
) -> None:
    folder = tmp_path / "later"
    for name in ("samples.jsonl", "environment.json", "vocabulary", "corpora"):
        (unfinished_run / name).symlink_to(hostile_run / name)
    row = Measurement("base", 0, "bits_per_byte", 1.0, "<img src=x onerror=window.hostile=3>")
    write_measurements(unfinished_run / "measurements.jsonl", [row])
    with served(folder) as server:
        browser.show(server.url, 400)
        assert "is not a run folder yet" in browser.evaluate("document.querySelector('#moments').textContent")
        folder.symlink_to(unfinished_run)
        browser.wait_for("document.querySelectorAll('#sections > section').length > 9")
        assert browser.evaluate("window.hostile === undefined && document.scripts.length === 4")
        assert browser.evaluate("document.querySelectorAll('#samples .said').length") == 2
        assert browser.evaluate("document.querySelectorAll('img, iframe, [onmouseover]').length") == 0
        assert browser.evaluate(OVERFLOW) <= 0
        assert browser.complaints() == []
        browser.call("Page.navigate", url="about:blank")
