"""A certificate authority that lives as long as a test: it signs for loopback, and for clients."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path

    @property
    def context(self) -> ssl.SSLContext:
        """TLS as a server with this certificate."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.cert, self.key)
        return made


class ThrowawayCa:
    """Signs certificates into a directory; `cert` is what to trust."""

    def __init__(self, directory: Path, name: str = "throw-away CA") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(_own_key_id(self._key), critical=False)
        )
        self.cert = self._write("ca.pem", self._pem(builder))

    def server(
        self,
        name: str = "server",
        *,
        addresses: Sequence[str] = ("127.0.0.1", "::1"),
        hosts: Sequence[str] = ("localhost",),
        days: float = 1,
    ) -> Pair:
        """A certificate for these hosts and addresses; negative days: it has expired."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ip_address(address)) for address in addresses]
        return self._leaf(name, names, days=days)

    def client(self, name: str) -> Pair:
        """A certificate whose common name is `name`."""
        return self._leaf(name, [x509.DNSName("client.invalid")])

    def _leaf(self, name: str, names: list[x509.GeneralName], *, days: float = 1) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), self._name, key, days=days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(_own_key_id(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Pair(
            cert=self._write(f"{name}.pem", self._pem(builder)),
            key=self._write(f"{name}.key", secret),
        )

    def _pem(self, builder: x509.CertificateBuilder) -> bytes:
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(content)
        return path


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: float = 1
) -> x509.CertificateBuilder:
    end = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=400))
        .not_valid_after(end)
    )


def _own_key_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
