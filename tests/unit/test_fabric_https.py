# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The HTTPS client of switches against a real server: certificates, errors, no secret in them."""

from __future__ import annotations

import gzip
import logging
import ssl
import threading
import time
import traceback
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import https, system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.https import (
    Https,
    HttpsService,
    Lost,
    Refused,
    text_of,
)

from tests.unit.https_server import LOOPBACK, Authority, Served, misbehaving, serving
from tests.unit.loopback import held_port
from tests.waiting import deadline

PASSWORD = "correct-horse-7"
TOKEN = "eyJhbGciOi.tok-9"
SERVICE = HttpsService("NVUE REST API", 8765, "nv show system.")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> tuple[Path, Path]:
    return authority.issue()


def login(port: int, authority: Authority | None, **more: object) -> system.SwitchLogin:
    values: dict[str, object] = {
        "address": LOOPBACK,
        "port": port,
        "user": "ops",
        "password": PASSWORD,
        "ca_file": str(authority.ca_file) if authority else "",
        "timeout_s": deadline(60),
    }
    values.update(more)
    return system.SwitchLogin(**values)  # type: ignore[arg-type]


def ask(given: system.SwitchLogin, method: str = "GET", path: str = "/nvue_v1/system") -> object:
    with Https(given, SERVICE) as switch:
        return switch.request(method, path, body={"x": 1} if method != "GET" else None)


def failing(given: system.SwitchLogin, kind: type[system.SwitchError] = system.SwitchError) -> str:
    """Return the message, and check that no chained exception shows a secret."""
    with pytest.raises(kind) as caught:
        ask(given)
    error: BaseException | None = caught.value
    assert error is not None and error.__context__ is None and error.__cause__ is None
    whole = "".join(traceback.format_exception(caught.value))
    for secret in (PASSWORD, TOKEN, "Authorization", "Basic ", "Bearer "):
        assert secret not in whole
    return str(caught.value)


def test_json_comes_back_and_the_password_goes_along(
    authority: Authority, issued: tuple[Path, Path]
) -> None:
    served = Served(body=b'{"version": "5.12"}', seen=[])
    with serving(*issued, served) as port:
        assert ask(login(port, authority)) == {"version": "5.12"}
        ask(login(port, authority, token=f"{TOKEN}\n"), "PATCH")
    assert served.seen is not None
    assert [one[:2] for one in served.seen] == [
        ("GET", "/nvue_v1/system"),
        ("PATCH", "/nvue_v1/system"),
    ]
    assert served.seen[0][2].startswith("Basic ")
    assert served.seen[1][2] == f"Bearer {TOKEN}"


def test_an_empty_answer_is_none(authority: Authority, issued: tuple[Path, Path]) -> None:
    with serving(*issued, Served(body=b"")) as port:
        assert ask(login(port, authority)) is None


def test_a_stranger_s_certificate_is_refused(
    authority: Authority, issued: tuple[Path, Path], tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    served = Served(seen=[])
    with serving(*issued, served) as port:
        message = failing(login(port, other), Lost)
        assert "not accepted" in message and str(other.ca_file) in message
        assert "switch_qos_ca_file" in message and f"127.0.0.1 port {port}" in message
        message = failing(login(port, None), Lost)
        assert "authorities: those of" in message
    assert served.seen == [], "credentials were sent"


def test_a_certificate_for_another_address_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served = Served(seen=[])
    with serving(*authority.issue("127.0.0.9"), served) as port:
        message = failing(login(port, authority), Lost)
    assert "valid for 127.0.0.1" in message and served.seen == []


def test_connection_refused_names_the_command_that_turns_it_on(authority: Authority) -> None:
    with held_port() as silent:
        message = failing(login(silent.getsockname()[1], authority), Lost)
    assert "Connection refused" in message and "nv show system" in message


def test_silence_ends_after_the_timeout(authority: Authority, issued: tuple[Path, Path]) -> None:
    done = threading.Event()
    with serving(*issued, Served(delay=done)) as port:
        message = failing(login(port, authority, timeout_s=0.2), Lost)
        done.set()
    assert "timed out" in message and "switch_qos_timeout_s" in message


def test_a_cut_connection_says_so(authority: Authority, issued: tuple[Path, Path]) -> None:
    with serving(*issued, Served(cut=True)) as port:
        assert "cut" in failing(login(port, authority), Lost)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, "switch_qos_password"), (403, "role"), (500, "HTTP 500"), (302, "HTTP 302")],
)
def test_a_refusal_has_the_switch_s_own_words(
    status: int, expected: str, authority: Authority, issued: tuple[Path, Path]
) -> None:
    body = f'{{"title": "No", "detail": "revision is gone, {PASSWORD}"}}'.encode()
    served = Served(status, body, headers=(("Location", "https://192.0.2.1/"),))
    with serving(*issued, served) as port:
        message = failing(login(port, authority), Refused)
    assert f"GET /nvue_v1/system: HTTP {status}: revision is gone, ***." in message
    assert expected in message


def test_a_page_that_is_not_json_is_named(authority: Authority, issued: tuple[Path, Path]) -> None:
    with serving(*issued, Served(body=b"<html>Login</html>", kind="text/html")) as port:
        message = failing(login(port, authority))
    assert "text/html, not JSON" in message and "switch_qos_port" in message


def test_an_answer_is_bounded_and_only_prints(
    authority: Authority, issued: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "MAX_BYTES", 1 << 20)
    with serving(*issued, Served(body=b"[" + b" " * (1 << 20) + b"]")) as port:
        message = failing(login(port, authority), Lost)
    assert message.endswith("longer than 1 MiB.")
    deep = b"[" * 100_000
    with serving(*issued, Served(body=deep)) as port:
        assert "not JSON" in failing(login(port, authority))
    with serving(*issued, Served(500, deep)) as port:
        assert "HTTP 500: [[[" in failing(login(port, authority), Refused)
    with serving(*issued, Served(body=b'{"name\\u001b[2J": ["\xe2\x80\xae"]}')) as port:
        assert ask(login(port, authority)) == {"name\\x1b[2J": ["\\u202e"]}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
AS_IT_LIKES = {
    "garbage": (b"\x00\xff\x1b[2Jgarbage \x07 no http\r\n\r\n" * 100, "was cut before"),
    "silence": (b"", "was cut before"),
    "cut": (HEAD + b'100000\r\n\r\n{"a": ', "was cut before"),
    "endless header": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20), "was cut before"),
    "no JSON": (HEAD + b'15\r\n\r\n[1, {"a": null}', "not JSON"),
}


@pytest.mark.parametrize(("sent", "named"), AS_IT_LIKES.values(), ids=AS_IT_LIKES)
def test_what_is_no_answer_ends_with_the_switch_s_address(
    sent: bytes, named: str, authority: Authority, issued: tuple[Path, Path]
) -> None:
    with misbehaving(*issued, lambda line: line.sendall(sent)) as port:
        message = failing(login(port, authority, timeout_s=deadline(5)))
    assert message.startswith(f"127.0.0.1 port {port}: GET /nvue_v1/system: ")
    assert named in message and message.isprintable()


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nX: ", HEAD + b"100000\r\n\r\n"])
def test_a_slow_answer_is_abandoned_at_the_limit(
    begin: bytes, authority: Authority, issued: tuple[Path, Path]
) -> None:
    """Slow headers too, which the timeout of httpx does not limit."""

    def drip(line: ssl.SSLSocket) -> None:
        line.sendall(begin or b"H")
        for _place in range(2000):
            time.sleep(0.05)
            line.sendall(b" " if begin else b"x")

    began = time.monotonic()
    with misbehaving(*issued, drip) as port:
        message = failing(login(port, authority, timeout_s=0.3), Lost)
    assert time.monotonic() - began < deadline(10)
    assert f"127.0.0.1 port {port}:" in message and "after 0.9 s" in message


def bomb(times: int, mebibytes: int) -> bytes:
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    text = b"".join(packed.compress(b"\0" * (1 << 20)) for _each in range(mebibytes))
    text += packed.flush()
    for _again in range(times - 1):
        text = gzip.compress(text, 9)
    return text


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "deflate", "br", "x-gzip", "\t GZIP"])
def test_what_is_compressed_is_refused_unread(encoding: str, status: int) -> None:
    def never() -> Iterator[bytes]:
        pytest.fail("it was read")
        yield b""

    def answer(asked: httpx.Request) -> httpx.Response:
        assert asked.headers["accept-encoding"] == "identity"
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        return httpx.Response(status, headers=headers, content=never())

    with (
        Https(login(443, None), SERVICE, httpx.MockTransport(answer)) as switch,
        pytest.raises(Lost, match=r"127\.0\.0\.1 port 443: GET /x: .* compressed"),
    ):
        switch.get("/x")


def test_a_request_writes_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """In a process that was forked while another thread wrote to it, that would block."""
    caplog.set_level(logging.INFO)
    answers = httpx.MockTransport(lambda _asked: httpx.Response(200, json={"x": 1}))
    with Https(login(443, None), SERVICE, answers) as switch:
        assert switch.get("/x") == {"x": 1}
    assert caplog.records == []


def test_a_small_answer_fills_no_memory(authority: Authority, issued: tuple[Path, Path]) -> None:
    """The answer can be neither compressed twice, nor JSON that needs an object for every other
    byte.
    """
    packed = (("Content-Encoding", "gzip, gzip"),)
    many = b"[" + b"[]," * (3 << 20) + b"[]]"
    for served, named in (
        (Served(body=bomb(2, 256), headers=packed), "compressed"),
        (Served(body=many), "has more than 1048576 values"),
        (Served(500, body=b'{"a": ' * (1 << 20)), "HTTP 500"),
    ):
        with serving(*issued, served) as port:
            tracemalloc.start()
            try:
                message = failing(login(port, authority))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        assert named in message
        assert peak < 2 * https.MAX_BYTES, f"{named}: {peak >> 20} MiB"


@pytest.mark.parametrize("content", [None, "no certificate in here"])
def test_an_unusable_ca_file_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content, encoding="ascii")
    message = failing(login(1, None, ca_file=str(path)))
    assert f"switch_qos_ca_file {path}" in message


def test_no_log_at_any_level_holds_the_credentials(
    authority: Authority, issued: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(*issued, Served()) as port:
        for given in (login(port, authority), login(port, authority, token=TOKEN)):
            with Https(given, SERVICE) as https:
                https.request("PATCH", "/x", {"rev": "1"}, {"a": 1})
                shown = repr(https) + str(https) + repr(given)
            assert PASSWORD not in shown and TOKEN not in shown
    assert caplog.text and PASSWORD not in caplog.text and TOKEN not in caplog.text
    assert "Basic " not in caplog.text and "Bearer" not in caplog.text


def test_the_environment_s_proxies_are_not_used(
    authority: Authority, issued: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with serving(*issued, Served()) as port:
        assert ask(login(port, authority)) == {}


def test_a_servers_own_message_is_one_line_of_bounded_length() -> None:
    assert text_of('{"errors": {"mtu": ["too\\nbig"]}}') == "errors: mtu: too big"
    assert len(text_of("x" * 5000)) < 500
