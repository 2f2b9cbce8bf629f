"""The webhook sink: its settings."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.sinks.webhook import KEY, OTHER_KEY, TOKEN, settings, shows_no_secret

from sinks.http.address import is_loopback

URL = "https://hooks.example.com/services/path-that-is-secret"


def refusal(**others: Any) -> str:
    """Return the message of the settings about invalid values, as a person sees it."""
    with pytest.raises(ValidationError) as caught:
        settings(**{"url": URL, **others})
    assert shows_no_secret(str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com/x",
        "ftp://hooks.example.com/x",
        "https://",
        "https:///path-that-is-secret",
        "https://hooks.example.com:99999/x",
        "https://hooks.example.com:0/x",
        "https://hooks.example.com:port/x",
        "https://[::1/x",
        "https://hooks.example.com/a b",
        "https://hooks.example.com/a\r\nHost: x",
        "https://.example.com/x",
        "https://*.example.com/x",
        f"https://{'a' * 64}.example.com/x",
    ],
)
def test_an_address_must_be_one(url: str) -> None:
    """A URL to which nothing can be posted is refused at the start, and not shown."""
    assert "url" in refusal(url=url)


@pytest.mark.parametrize("url", ["https://me:path-that-is-secret@example.com/", "http://me@x/"])
def test_a_password_in_the_address_is_refused(url: str) -> None:
    """A password in the address is refused and not shown; the message says where it belongs."""
    assert "use headers (Authorization)" in refusal(url=url)


@pytest.mark.parametrize(
    "proxy", ["socks5://p:1080", "http://vm:token-that-is-secret@x", "http://"]
)
def test_a_proxy_is_http_and_has_no_secret(proxy: str) -> None:
    """A proxy that is not HTTP, or has a password in its address, is refused at the start, without
    showing the password.
    """
    assert "http://HOST:PORT" in refusal(proxy=proxy)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "https://hooks.example.com"),
        ("http://127.0.0.1:8080/x?y=z#f", "http://127.0.0.1:8080"),
        ("https://[::1]:8443/x", "https://[::1]:8443"),
        ("HTTPS://Hooks.Example.com/x", "https://hooks.example.com"),
    ],
)
def test_only_the_origin_is_shown(url: str, shown: str) -> None:
    """Messages show only scheme, host and port of an address."""
    assert shown == settings(url).shown


def test_nothing_secret_is_printed() -> None:
    """Neither printing nor dumping the settings shows a secret."""
    made = settings(URL, secret=KEY, headers={"Authorization": TOKEN}, template="token-that-is")
    assert shows_no_secret(f"{made!r} {made} {made.model_dump()} {made.model_dump_json()}")


@pytest.mark.parametrize(
    "secret",
    [
        KEY,
        KEY.removeprefix("whsec_"),
        KEY.rstrip("="),
        f"{KEY} {OTHER_KEY}",
        f"  {KEY}\t{OTHER_KEY}\n",
        "whsec_" + base64.b64encode(b"short").decode(),
    ],
)
def test_secrets_that_are_keys(secret: str) -> None:
    """Keys of Standard Webhooks are accepted, with or without prefix and padding, one or two."""
    assert len(settings(URL, secret=secret).keys()) == len(secret.split())


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "token-that-is-secret",
        "whsec_",
        "whsec_!!",
        "whsec_\u00e9",
        "password",
        "a" * 31 + "*",
        f"{KEY} " * 3,
    ],
)
def test_secrets_that_are_no_keys(secret: str) -> None:
    """Plain text is refused, because its signatures could not be verified; so are three words, as
    two keys are a rotation.
    """
    message = refusal(secret=secret)
    assert message.startswith("1 validation error for WebhookSettings\nsecret\n")
    assert any(each in message for each in ("openssl rand -base64 32", "this is 0", "this is 3"))


def test_a_secret_and_its_file_exclude_each_other(tmp_path: Path) -> None:
    """A secret and its file cannot both be set."""
    file = tmp_path / "secret"
    file.write_text(KEY)
    assert "not both" in refusal(secret=KEY, secret_file=str(file))


@pytest.mark.parametrize("content", [None, b"token-that-is-secret", b"\xff\xfe"])
def test_an_invalid_secret_file(tmp_path: Path, content: bytes | None) -> None:
    """A secret file that is missing, or has no key, is refused at the start."""
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    message = refusal(secret_file=str(file))
    assert message.startswith("1 validation error for WebhookSettings\nsecret_file\n")
    assert str(file) in message or "openssl rand" in message


def test_headers_come_as_json() -> None:
    """Headers in the environment are a JSON object."""
    made = settings(URL, headers=json.dumps({"X-Ops": "1", "Authorization": TOKEN}))
    assert {k: v.get_secret_value() for k, v in made.headers.items()} == {
        "X-Ops": "1",
        "Authorization": TOKEN,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-id": "x"},
        {"Webhook-Signature": "x"},
        {"HOST": "x"},
        {"Content-Length": "1"},
        {"Transfer-Encoding": "chunked"},
        {"": "x"},
        {"a b": "x"},
        {"a:b": "x"},
        {"x": "a\r\nb: token-that-is-secret"},
        {"x": "token-that-is-secret\u2013"},
        {"x": " token-that-is-secret"},
        "{token-that-is-secret",
        '["token-that-is-secret"]',
        '{"x": 1}',
    ],
)
def test_invalid_headers(headers: Any) -> None:
    """Headers that the bridge sets itself, or that HTTP forbids, are refused without showing the
    value.
    """
    assert "headers" in refusal(headers=headers)


def test_a_template_is_compiled_at_start() -> None:
    """A mistake in a template is a mistake in the settings."""
    assert "template, line 2: " in refusal(template="{\n{{ vm. }}")


def test_a_template_that_is_json_may_have_been_read_as_json() -> None:
    """A template that is JSON works although the reader of nested variables has parsed it."""
    made = settings(URL, template={"text": "{{ vm.name }}"})
    assert made.template
    assert made.template.get_secret_value() == '{"text": "{{ vm.name }}"}'


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost.example.com", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    """Only loopback addresses need no encryption."""
    assert expected == is_loopback(host)
