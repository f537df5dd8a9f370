"""Tests of the serving certificate: loading, reloading, refusals, and TLS."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import new_authority, service_names, sign_leaf
from certs.keypairs import KeyPair, fingerprint, pem_bundle
from certs.serving import ServingCertificate
from certs.validity import utc_now
from cluster.controllers.certs_command import main

NAMES = service_names("gpuward", "gpuward-system")
NAME = NAMES[-1]
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return new_authority(NAMES, utc_now())


@pytest.fixture
def leaf(authority: KeyPair) -> KeyPair:
    return sign_leaf(authority, NAMES, utc_now())


def write(folder: Path, pair: KeyPair) -> None:
    """Write plain files, as tools outside of Kubernetes do."""
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)


def mount(folder: Path, version: str, pair: KeyPair) -> None:
    """Write like the kubelet: one folder per version, and a link that is replaced."""
    (folder / version).mkdir()
    write(folder / version, pair)
    (folder / "..new").symlink_to(version)
    (folder / "..new").rename(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def rsa_leaf(authority: KeyPair) -> KeyPair:
    key = rsa.generate_private_key(65537, 2048)
    like = sign_leaf(authority, NAMES, utc_now()).certificate
    builder = x509.CertificateBuilder(
        like.issuer,
        like.subject,
        key.public_key(),
        x509.random_serial_number(),
        like.not_valid_before_utc,
        like.not_valid_after_utc,
    )
    for extension in like.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    assert authority.key is not None
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def serving(certificate: ServingCertificate) -> AsyncIterator[int]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificate.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Connection:
    """A client that trusts `authority`, and one connection of its own."""

    def __init__(self, authority: KeyPair, client: Path | None = None) -> None:
        self.context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        if client:
            self.context.load_cert_chain(client)

    async def open(self, port: int, name: str = NAME) -> Connection:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.context, server_hostname=name
        )
        return self

    @property
    def tls(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    @property
    def fingerprint(self) -> str:
        certificate = self.tls.getpeercert(binary_form=True)
        assert certificate
        return fingerprint(x509.load_der_x509_certificate(certificate))

    async def works(self) -> bool:
        try:
            self.writer.write(b"hello\n")
            await self.writer.drain()
            return await self.reader.readline() == b"hello\n"
        except OSError:
            return False

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def served_fingerprint(port: int, authority: KeyPair) -> str:
    connection = await Connection(authority).open(port)
    assert await connection.works()
    await connection.close()
    return connection.fingerprint


async def test_a_new_certificate_is_served_and_open_connections_live_on(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    mount(tmp_path, "..1", leaf)
    certificate = ServingCertificate(str(tmp_path), NAME)
    assert certificate.reload()
    async with serving(certificate) as port:
        open_connection = await Connection(authority).open(port)
        newer = sign_leaf(authority, NAMES, utc_now())
        mount(tmp_path, "..2", newer)
        assert await served_fingerprint(port, authority) == fingerprint(leaf.certificate)
        assert certificate.reload()
        assert await served_fingerprint(port, authority) == fingerprint(newer.certificate)
        assert certificate.fingerprint == fingerprint(newer.certificate)
        assert await open_connection.works()
        await open_connection.close()
    assert not certificate.reload(), "nothing changed"
    assert certificate.failures == 0


async def test_a_key_of_another_type_replaces_the_old_one(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, leaf)
    certificate = ServingCertificate(str(tmp_path), NAME)
    certificate.reload()
    async with serving(certificate) as port:
        for other in (rsa_leaf(authority), sign_leaf(authority, NAMES, utc_now())):
            write(tmp_path, other)
            assert certificate.reload(), certificate.last_error
            assert await served_fingerprint(port, authority) == fingerprint(other.certificate)


def swapped(folder: Path, authority: KeyPair) -> None:
    (folder / "tls.key").write_bytes(sign_leaf(authority, NAMES, utc_now()).key_pem)


def half(folder: Path, authority: KeyPair) -> None:
    content = sign_leaf(authority, NAMES, utc_now()).certificate_pem
    (folder / "tls.crt").write_bytes(content[: len(content) // 2])


def half_key(folder: Path, authority: KeyPair) -> None:
    del authority
    content = (folder / "tls.key").read_bytes()
    (folder / "tls.key").write_bytes(content[: len(content) // 2])


def empty(folder: Path, authority: KeyPair) -> None:
    del authority
    (folder / "tls.key").write_bytes(b"")


def missing(folder: Path, authority: KeyPair) -> None:
    del authority
    (folder / "tls.crt").unlink()


def expired(folder: Path, authority: KeyPair) -> None:
    write(folder, sign_leaf(authority, NAMES, utc_now() - 2 * DAY, DAY))


def from_tomorrow(folder: Path, authority: KeyPair) -> None:
    write(folder, sign_leaf(authority, NAMES, utc_now() + DAY))


def of_another(folder: Path, authority: KeyPair) -> None:
    write(folder, sign_leaf(authority, ["other.svc"], utc_now()))


def an_authority(folder: Path, authority: KeyPair) -> None:
    write(folder, authority)


def encrypted(folder: Path, authority: KeyPair) -> None:
    pair = sign_leaf(authority, NAMES, utc_now())
    write(folder, pair)
    key = pair.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (folder / "tls.key").write_bytes(key)


def huge(folder: Path, authority: KeyPair) -> None:
    del authority
    with (folder / "tls.crt").open("ab") as file:
        file.truncate(2**24)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (swapped, "the private key does not belong to the certificate"),
        (half, "the certificate cannot be read"),
        (half_key, "the private key cannot be read"),
        (empty, "tls.key is empty"),
        (missing, "tls.crt: no such file or directory"),
        (expired, "expired at "),
        (from_tomorrow, "not valid before "),
        (of_another, f"the certificate is for other.svc, and not for {NAME}"),
        (an_authority, f"the certificate is for no name, and not for {NAME}"),
        (encrypted, "the private key is encrypted"),
        (huge, "tls.crt is larger than a Secret can be"),
    ],
)
async def test_a_certificate_that_cannot_be_served_keeps_the_old_one(
    tmp_path: Path,
    authority: KeyPair,
    leaf: KeyPair,
    damage: Callable[[Path, KeyPair], None],
    expected: str,
) -> None:
    write(tmp_path, leaf)
    certificate = ServingCertificate(str(tmp_path), NAME)
    certificate.reload()
    damage(tmp_path, authority)
    async with serving(certificate) as port:
        assert not certificate.reload()
        assert certificate.last_error is not None
        assert certificate.last_error.startswith(expected)
        assert "PRIVATE" not in certificate.last_error
        assert certificate.failures == 1
        assert await served_fingerprint(port, authority) == fingerprint(leaf.certificate)
        write(tmp_path, leaf)
        assert not certificate.reload(), "it is already served"
        assert certificate.last_error is None


async def test_before_there_is_a_certificate_handshakes_fail_and_then_work(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    certificate = ServingCertificate(str(tmp_path), NAME)
    assert not certificate.reload()
    assert not certificate.is_ready
    assert (certificate.not_after, certificate.expiry_seconds()) == (None, None)
    assert (certificate.fingerprint, certificate.names) == (None, ())
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    async with serving(certificate) as port:
        with pytest.raises(OSError):  # noqa: PT011  # a reset or a TLS alert, depending on timing
            await Connection(authority).open(port)
        write(tmp_path, leaf)
        assert certificate.reload()
        assert certificate.is_ready
        assert await served_fingerprint(port, authority) == fingerprint(leaf.certificate)


async def test_a_client_without_server_name_is_served(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, leaf)
    certificate = ServingCertificate(str(tmp_path), NAME)
    certificate.reload()
    connection = Connection(authority)
    connection.context.check_hostname = False
    async with serving(certificate) as port:
        await connection.open(port, name="")
        assert connection.fingerprint == fingerprint(leaf.certificate)
        await connection.close()


async def test_only_http_1_and_authenticated_ciphers_are_offered(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, leaf)
    certificate = ServingCertificate(str(tmp_path), NAME)
    certificate.reload()
    async with serving(certificate) as port:
        connection = await Connection(authority).open(port)
        assert connection.tls.selected_alpn_protocol() == "http/1.1"
        assert connection.tls.version() == "TLSv1.3"
        await connection.close()
        older = Connection(authority)
        older.context.maximum_version = ssl.TLSVersion.TLSv1_2
        await older.open(port)
        cipher = older.tls.cipher()
        assert cipher is not None
        assert "GCM" in cipher[0] or "CHACHA20" in cipher[0]
        await older.close()
        weak = Connection(authority)
        weak.context.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.context.set_ciphers("ECDHE-ECDSA-AES128-SHA")
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        with pytest.raises(OSError):  # noqa: PT011
            await weak.open(port)


def client_files(folder: Path, name: str) -> tuple[KeyPair, Path]:
    """A new client CA, and a file with a client certificate and key of it."""
    authority = new_authority([name], utc_now())
    pair = sign_leaf(authority, [name], utc_now())
    # The leaf is for servers only, and a server refuses that from a client. Sign one without it.
    builder = x509.CertificateBuilder(
        pair.certificate.issuer,
        pair.certificate.subject,
        pair.certificate.public_key(),
        x509.random_serial_number(),
        pair.certificate.not_valid_before_utc,
        pair.certificate.not_valid_after_utc,
    )
    certificate = builder.sign(authority.key, hashes.SHA256())
    file = folder / f"{name}.pem"
    file.write_bytes(KeyPair(certificate, pair.key).certificate_pem + pair.key_pem)
    return authority, file


async def test_only_clients_of_the_client_ca_are_accepted_and_it_can_be_replaced(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, leaf)
    first, first_client = client_files(tmp_path, "first")
    second, second_client = client_files(tmp_path, "second")
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(first.certificate_pem)
    certificate = ServingCertificate(str(tmp_path), NAME, str(trusted))
    assert certificate.reload()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def is_accepted(client: Path | None) -> bool:
        connection = await Connection(authority, client).open(port)
        works = await connection.works()
        await connection.close()
        return works

    async with serving(certificate) as port:
        assert [await is_accepted(c) for c in (first_client, second_client, None)] == [1, 0, 0]
        trusted.write_bytes(b"nonsense")
        assert not certificate.reload()
        assert certificate.last_error == "the client CA file has no certificate"
        assert [await is_accepted(c) for c in (first_client, second_client, None)] == [1, 0, 0]
        trusted.write_bytes(second.certificate_pem)
        assert certificate.reload()
        assert [await is_accepted(c) for c in (first_client, second_client, None)] == [0, 1, 0]
        # A session of TLS 1.2 could be resumed by its id without verifying the certificate.
        older = Connection(authority, second_client)
        older.context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError):  # noqa: PT011
            await older.open(port)


def test_a_tls_session_cannot_be_resumed(tmp_path: Path, authority: KeyPair, leaf: KeyPair) -> None:
    # With session tickets, on by default, it could be resumed without verification.
    write(tmp_path, leaf)
    first, first_client = client_files(tmp_path, "first")
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(first.certificate_pem)
    certificate = ServingCertificate(str(tmp_path), NAME, str(trusted))
    certificate.reload()
    client = Connection(authority, first_client).context
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def connect(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
            thread = threading.Thread(target=greet, args=(server, certificate.context))
            thread.start()
            with (
                socket.create_connection(server.getsockname()) as plain,
                client.wrap_socket(plain, server_hostname=NAME, session=session) as tls,
            ):
                assert tls.recv(1) == b"x"
                assert not tls.session_reused
                found = tls.session
            thread.join()
            return found

        connect(connect(None))


def greet(server: socket.socket, context: ssl.SSLContext) -> None:
    plain, _ = server.accept()
    with context.wrap_socket(plain, server_side=True) as tls:
        tls.sendall(b"x")


def test_certificate_and_key_are_of_one_version_of_a_mounted_secret(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(tmp_path, "..1", leaf)
    newer = sign_leaf(authority, NAMES, utc_now())
    certificate = ServingCertificate(str(tmp_path), NAME)
    real, swaps = os.path.realpath, iter([True])

    def swap_after(path: str) -> str:
        found = real(path)
        if next(swaps, False):
            mount(tmp_path, "..2", newer)
        return found

    monkeypatch.setattr(os.path, "realpath", swap_after)
    assert certificate.reload(), certificate.last_error
    assert certificate.fingerprint == fingerprint(newer.certificate)
    assert certificate.failures == 0


def test_a_secret_that_changes_at_every_look_is_not_served(
    tmp_path: Path, authority: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(tmp_path, "..0", sign_leaf(authority, NAMES, utc_now()))
    certificate = ServingCertificate(str(tmp_path), NAME)
    real, versions = os.path.realpath, iter(range(1, 1000))

    def swap_after(path: str) -> str:
        found = real(path)
        mount(tmp_path, f"..{next(versions)}", sign_leaf(authority, NAMES, utc_now()))
        return found

    monkeypatch.setattr(os.path, "realpath", swap_after)
    assert not certificate.reload()
    assert certificate.last_error == "the folder keeps changing"


def test_names_that_cannot_be_read_are_refused(tmp_path: Path, authority: KeyPair) -> None:
    like = sign_leaf(authority, NAMES, utc_now())
    issued = like.certificate
    builder = x509.CertificateBuilder(
        issued.issuer,
        issued.subject,
        issued.public_key(),
        issued.serial_number,
        issued.not_valid_before_utc,
        issued.not_valid_after_utc,
    )
    names = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"no names")
    signed = builder.add_extension(names, critical=False).sign(authority.key, hashes.SHA256())
    write(tmp_path, KeyPair(signed, like.key))
    certificate = ServingCertificate(str(tmp_path), NAME)
    assert not certificate.reload()
    assert certificate.last_error == "the names of the certificate cannot be read"


def test_sessions_of_tls_1_2_get_no_ticket(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, leaf)
    certificate = ServingCertificate(str(tmp_path), NAME)
    certificate.reload()
    client = Connection(authority).context
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=greet, args=(server, certificate.context))
        thread.start()
        with (
            socket.create_connection(server.getsockname()) as plain,
            client.wrap_socket(plain, server_hostname=NAME) as tls,
        ):
            assert tls.recv(1) == b"x"
            assert tls.session
            assert not tls.session.has_ticket
        thread.join()


def test_a_certificate_that_expires_is_still_served_with_a_negative_expiry(
    tmp_path: Path, authority: KeyPair
) -> None:
    now = utc_now()
    write(tmp_path, sign_leaf(authority, NAMES, now, DAY))
    certificate = ServingCertificate(str(tmp_path), NAME, clock=lambda: now)
    certificate.reload()
    assert certificate.expiry_seconds() == pytest.approx(86400, abs=1)
    assert certificate.expiry_seconds(now + 2 * DAY) == pytest.approx(-86400, abs=1)
    assert certificate.is_ready


def test_no_writable_file_system_is_needed(
    tmp_path: Path, leaf: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "memfd_create"):
        pytest.skip("only Linux has files in memory")
    write(tmp_path, leaf)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", None)
    assert ServingCertificate(str(tmp_path), NAME).reload()


def test_without_memory_files_a_temporary_file_is_used(
    tmp_path: Path, leaf: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, leaf)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.delattr("os.memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    assert ServingCertificate(str(tmp_path), NAME).reload()
    assert not list(place.iterdir())


def test_a_wildcard_matches_one_label(tmp_path: Path) -> None:
    now = utc_now()
    authority = new_authority(["example.org"], now)
    write(tmp_path, sign_leaf(authority, ["*.example.org"], now))
    assert ServingCertificate(str(tmp_path), "gpuward.example.org").reload()
    assert not ServingCertificate(str(tmp_path), "a.b.example.org").reload()


def test_a_certificate_for_an_ip_address_is_served(tmp_path: Path) -> None:
    names = ["localhost", "127.0.0.1"]
    authority = new_authority(names, utc_now())
    write(tmp_path, sign_leaf(authority, names, utc_now()))
    certificate = ServingCertificate(str(tmp_path), "127.0.0.1")
    assert certificate.reload(), certificate.last_error
    client = ssl.create_default_context(cadata=pem_bundle([authority.certificate]).decode())
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=greet, args=(server, certificate.context))
        thread.start()
        with (
            socket.create_connection(server.getsockname()) as plain,
            client.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        ):
            assert tls.recv(1) == b"x"
        thread.join()


def test_a_certificate_that_does_not_say_what_it_is_for_is_served(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, with_usages(authority, leaf))
    certificate = ServingCertificate(str(tmp_path), NAME)
    assert certificate.reload(), certificate.last_error


def test_a_certificate_for_clients_alone_is_not_served(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair
) -> None:
    write(tmp_path, with_usages(authority, leaf, ExtendedKeyUsageOID.CLIENT_AUTH))
    certificate = ServingCertificate(str(tmp_path), NAME)
    assert not certificate.reload()
    assert "does not allow serving" in str(certificate.last_error)


def with_usages(authority: KeyPair, leaf: KeyPair, *usages: x509.ObjectIdentifier) -> KeyPair:
    """The pair `leaf` with a certificate that is for other usages; none says nothing of them."""
    same = leaf.certificate
    builder = (
        x509.CertificateBuilder()
        .subject_name(same.subject)
        .issuer_name(same.issuer)
        .public_key(same.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(same.not_valid_before_utc)
        .not_valid_after(same.not_valid_after_utc)
    )
    for extension in same.extensions:
        if not isinstance(extension.value, x509.ExtendedKeyUsage):
            builder = builder.add_extension(extension.value, extension.critical)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), leaf.key)


def test_the_check_on_the_command_line(
    tmp_path: Path, authority: KeyPair, leaf: KeyPair, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, leaf)
    assert main(["check", str(tmp_path), "--name", NAME]) == 0
    output = capsys.readouterr().out
    assert "would be served until" in output
    assert fingerprint(leaf.certificate) in output
    expired(tmp_path, authority)
    assert main(["check", str(tmp_path)]) == 1
    assert "would be refused: expired at" in capsys.readouterr().err
    (tmp_path / "tls.crt").write_bytes(leaf.key_pem)
    assert main(["check", str(tmp_path)]) == 1
    assert "would be refused: there is no certificate in tls.crt" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "nowhere")]) == 2
