"""An OpenID provider of ours that answers whatever a test wants, right or wrong."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import jwt
import requests
from cryptography.hazmat.primitives.asymmetric import rsa

Json = dict[str, Any]


class ProviderKey:
    """A signing key with a name."""

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.private = rsa.generate_private_key(65537, 2048)

    @property
    def public(self) -> Json:
        """Its JWK."""
        found: Json = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.private.public_key()))
        return {**found, "kid": self.kid, "use": "sig"}


class HostileProvider:
    """It runs as a context manager. A test changes what it publishes and what it gives."""

    def __init__(self) -> None:
        self.key = ProviderKey("first")
        self.published: list[Json] = [self.key.public]
        self.metadata: Json = {}
        """What differs from a right discovery document."""
        self.id_token: object = None
        """What it gives for any code."""
        self.about: Json | None = None
        """What its userinfo endpoint says."""
        self.token_status = 200
        self.asked: list[tuple[str, Json]] = []
        """Path and fields of each request."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.answer(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                provider.answer(self, {name: one for name, (one, *_) in parse_qs(body).items()})

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(10)

    def answer(self, handler: BaseHTTPRequestHandler, fields: Json) -> None:
        """One request."""
        path = urlsplit(handler.path).path
        self.asked.append((path, fields))
        status, content = 200, self._content(path)
        if path == "/token" and self.token_status != 200:
            status, content = self.token_status, {"error": "invalid_grant"}
        body = json.dumps(content).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _content(self, path: str) -> object:
        if path == "/.well-known/openid-configuration":
            ends = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")
            named = {each: f"{self.issuer}/{each.partition('_')[0]}" for each in ends}
            whole = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **named}
            return {name: v for name, v in (whole | self.metadata).items() if v is not None}
        if path == "/keys":
            return {"keys": self.published}
        if path == "/token":
            return {"access_token": "access", "token_type": "Bearer", "id_token": self.id_token}
        return self.about if path == "/userinfo" else {}

    def claims(self, nonce: str, /, **changed: Any) -> Json:
        """The right claims; None in `changed` leaves one out."""
        now = int(time.time())
        right = {
            "iss": self.issuer,
            "aud": "console",
            "sub": "ann",
            "preferred_username": "ann",
            "groups": ["ops"],
            "nonce": nonce,
            "iat": now,
            "exp": now + 300,
        }
        return {name: value for name, value in (right | changed).items() if value is not None}

    def sign(self, claims: Json, *, key: ProviderKey | None = None, **header: Any) -> str:
        """An ID token, by default of its own key."""
        used = key or self.key
        return jwt.encode(claims, used.private, "RS256", {"kid": used.kid, **header})


def unsigned(claims: Json, header: Json, signature: bytes = b"") -> str:
    """A token whose header and signature are anything."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts)


class BegunLogin:
    """A login that was begun at a console, as its browser knows it; `http` is a browser's own."""

    def __init__(
        self, console: str, path: str = "/fleet?q=a", *, http: requests.Session | None = None
    ) -> None:
        self.console = console
        self.http = http or requests.Session()
        self.http.trust_env = False
        login = self._leads_to(console + path)
        found = parse_qs(urlsplit(self._leads_to(console + login)).query)
        self.query = {name: one for name, (one,) in found.items()}

    def _leads_to(self, address: str) -> str:
        answer = self.http.get(address, allow_redirects=False, timeout=20)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    @property
    def nonce(self) -> str:
        return self.query["nonce"]

    def come_back(self, **changed: str | None) -> requests.Response:
        """The provider's redirect back, with a code."""
        params = {"state": self.query["state"], "code": "c0de"} | changed
        address = f"{self.console}/login/callback"
        return self.http.get(address, params=params, allow_redirects=False, timeout=20)

    def status(self) -> int:
        """Whether this browser sees something."""
        return self.http.get(f"{self.console}/api/v1/vms", timeout=20).status_code
