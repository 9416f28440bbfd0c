"""The live page's server: three answers to whoever calls this machine by its own name, and nothing else."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lingraft.errors import RunFolderError, ServingError
from lingraft.measurement import Measurement, write_measurements
from lingraft.recipe import Recipe
from lingraft.recipe_file import dump_recipe
from lingraft.report import live
from lingraft.report.live import LiveServer, open_server


@contextmanager
def served(*folders: Path, **more: Any) -> Iterator[LiveServer]:
    with open_server(folders, port=0, **more) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A run that has just begun: its page is made quickly."""
    return begin(tmp_path / "small")


def begin(folder: Path) -> Path:
    folder.mkdir()
    (folder / "recipe.yaml").write_text(dump_recipe(recipe()), encoding="utf-8")
    write_measurements(folder / "measurements.jsonl", [Measurement("base", 0, "bits_per_byte", 1.9, "eu")])
    return folder


def recipe() -> Recipe:
    stage = {"name": "only", "tokens": 20_480, "mix": {"eu": 1.0}, "lr": {"peak": 1e-4}}
    stage |= {"batch": {"tokens": 1024, "sequence_length": 256, "micro_batch": 2}}
    return Recipe.model_validate({
        "name": "small", "base_model": "org/model", "languages": {"source": "en", "target": "eu"},
        "corpora": {code: {"path": f"/x/{code}.jsonl"} for code in ("eu", "en")}, "stages": [stage],
    })  # fmt: skip


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page be made again as often as it changes."""
    monkeypatch.setattr(live, "_SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(live, "_SHARE_OF_A_CORE", 1e9)


def test_the_page_may_ask_its_own_server_and_nobody_else(finished_run: Path) -> None:
    with served(finished_run) as server:
        status, headers, page = ask(server, "/")
    assert status == 200
    assert "connect-src 'self'; base-uri 'none'" in page
    assert page.count("<script>") == 3
    assert f'data-server="{server.page.server}"' in page
    assert 'id="summary"' in page
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_a_change_in_the_folder_is_a_new_version(small: Path, often: None) -> None:
    with served(small) as server:
        first = json.loads(ask(server, "/state.json")[2])
        assert json.loads(ask(server, "/state.json")[2])["version"] == first["version"]
        write_measurements(small / "measurements.jsonl", [Measurement("only", 1_024, "bits_per_byte", 1.2345, "eu")])
        with (small / "measurements.jsonl").open("a") as file:
            file.write('{"stage": "continued-pre')
        second = json.loads(ask(server, "/state.json")[2])
        content = json.loads(ask(server, "/content.json")[2])
    assert first["version"] != second["version"] == content["version"]
    assert "1.234" in content["sections"]
    assert "1,024" in content["sections"]
    assert len(content["figures"]) == 1


def test_the_page_is_not_made_more_often_than_training_can_bear(small: Path) -> None:
    with served(small) as server:
        first = json.loads(ask(server, "/content.json")[2])["version"]
        write_measurements(small / "measurements.jsonl", [Measurement("base", 0, "x", 1)])
        assert json.loads(ask(server, "/state.json")[2])["version"] == first
        server.page._not_before = 0.0
        assert json.loads(ask(server, "/state.json")[2])["version"] != first


def test_a_run_that_is_not_there_yet_is_waited_for(tmp_path: Path, often: None) -> None:
    with served(tmp_path / "later") as server:
        state = json.loads(ask(server, "/state.json")[2])
        assert "is not a run folder yet" in state["moments"]
        assert not state["ended"]
        assert "Nothing has been measured yet" in ask(server, "/")[2]
        begin(tmp_path / "later")
        assert 'id="bits-per-byte"' in json.loads(ask(server, "/content.json")[2])["sections"]
        assert json.loads(ask(server, "/state.json")[2])["title"] == "0 % · lingraft report: small"


def test_several_runs_side_by_side_those_that_are_there(small: Path, tmp_path: Path) -> None:
    with served(small, begin(tmp_path / "other"), tmp_path / "later") as server:
        state, page = json.loads(ask(server, "/state.json")[2]), ask(server, "/")[2]
    assert state["moments"].count('class="moment') == 3
    assert "<h1>" in page
    assert page.count('<div class="column">') > 2


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8321", "127.0.0.1.evil.example", "[::1", ""])
def test_other_names_are_refused(small: Path, host: str) -> None:
    """DNS rebinding: a foreign name that points here gets nothing."""
    with served(small) as server:
        for path in ("/", "/state.json", "/content.json"):
            status, _, text = ask(server, path, Host=host)
            assert (status, "measured" in text) == (421, False)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8321", "[::1]:8321", "10.0.0.7", "LOCALHOST"])
def test_this_machine_s_names_and_numbers_are_answered(tmp_path: Path, host: str) -> None:
    with served(tmp_path / "later") as server:
        assert ask(server, "/state.json", Host=host)[0] == 200


@pytest.mark.parametrize(
    "path", ["/recipe.yaml", "/../recipe.yaml", "/%2e%2e/recipe.yaml", "//etc/passwd", "/state.json/..", "/index.html"]
)
def test_no_address_is_a_file(small: Path, path: str) -> None:
    with served(small) as server:
        status, _, text = ask(server, path)
    assert (status, "base_model" in text) == (404, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_get_and_head(tmp_path: Path, method: str) -> None:
    with served(tmp_path / "later") as server:
        status, headers, _ = ask(server, "/", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        status, headers, text = ask(server, "/", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


def test_a_folder_that_changes_while_it_is_read_is_asked_again(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(folder: Path) -> None:
        raise FileNotFoundError(folder)

    with served(small) as server:
        with monkeypatch.context() as patch:
            patch.setattr(live, "read_record", vanish)
            assert ask(server, "/content.json")[0] == 503
        assert ask(server, "/content.json")[0] == 200


def test_addresses_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServingError, match=rf"--port: {port} on 127.0.0.1 is in use; name another, or --port 0"):
            open_server([tmp_path], port=port)
    with pytest.raises(ServingError, match=r"--host 203.0.113.7, --port 0: cannot be listened at"):
        open_server([tmp_path], host="203.0.113.7", port=0)


def test_what_cannot_become_a_run_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="file is a file, not a run folder"):
        open_server([tmp_path / "file"], port=0)
    with pytest.raises(RunFolderError, match="at least one"):
        open_server([], port=0)


def test_the_command_ends_cleanly_and_needs_no_torch(small: Path) -> None:
    """Ctrl-C ends it with status 0; its modules hold neither torch nor transformers."""
    # A shell's background job ignores Ctrl-C, and so would what it starts.
    code = (
        "import atexit, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "atexit.register(lambda: print('torch' in sys.modules, 'transformers' in sys.modules)); "
        "from lingraft.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "report", str(small), "--live", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        connection = http.client.HTTPConnection(url.removeprefix("http://").strip("/"), timeout=20)
        connection.request("GET", "/state.json")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.split("\n")[-2:] == ["False False", ""]
    assert "ended" in out


def test_polling_is_cheap(small: Path) -> None:
    with served(small) as server:
        began = time.perf_counter()
        for _ in range(20):
            server.page.state()
        assert (time.perf_counter() - began) / 20 < 0.25
