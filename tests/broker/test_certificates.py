"""Certificates that are made here are what strict clients accept, and only for the names that were asked for."""

import ssl
import subprocess
from pathlib import Path

import pytest
from brokers import needs_openssl

from mas.broker.certificates import TlsFiles, made_files, make_certificates, tls_problem
from mas.core.errors import ConfigError

pytestmark = needs_openssl


def put(directory: Path, name: str) -> TlsFiles:
    """New files for a name."""
    files = made_files(directory)
    for path, content in make_certificates(files, name).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return put(tmp_path_factory.mktemp("tls"), "bus.example.org")


@pytest.mark.parametrize("name", ["bus.example.org", "localhost", "127.0.0.1", "::1"])
def test_clients_accept_the_names_that_it_is_for(files: TlsFiles, name: str) -> None:
    assert tls_problem(files, name) is None


@pytest.mark.parametrize("name", ["example.org", "x.bus.example.org", "127.0.0.2"])
def test_clients_refuse_other_names(files: TlsFiles, name: str) -> None:
    problem = tls_problem(files, name)
    assert problem is not None
    assert "clients would refuse the certificate" in problem
    assert "mismatch" in problem


def test_an_address_is_a_name(tmp_path: Path) -> None:
    files = put(tmp_path, "192.0.2.7")
    assert tls_problem(files, "192.0.2.7") is None
    assert tls_problem(files, "192.0.2.8") is not None


def test_it_holds_in_the_strictest_reading(files: TlsFiles) -> None:
    assert files.ca is not None
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(files.ca), str(files.cert)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_client_that_does_not_know_the_authority_refuses_it(files: TlsFiles) -> None:
    problem = tls_problem(TlsFiles(cert=files.cert, key=files.key, ca=None), "localhost")
    assert problem is not None
    assert "unable to get local issuer certificate" in problem


def test_two_brokers_do_not_pass_for_each_other(files: TlsFiles, tmp_path: Path) -> None:
    other = put(tmp_path, "bus.example.org")
    assert tls_problem(TlsFiles(cert=other.cert, key=other.key, ca=files.ca), "localhost") is not None


def test_the_key_of_the_authority_is_nowhere(tmp_path: Path) -> None:
    files = put(tmp_path, "localhost")
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"ca.crt", "server.crt", "server.key"}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert files.ca is not None
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(files.ca, files.key)


def test_files_that_do_not_belong_together_are_named(files: TlsFiles, tmp_path: Path) -> None:
    other = put(tmp_path, "localhost")
    mixed = tls_problem(TlsFiles(cert=files.cert, key=other.key, ca=files.ca), "localhost")
    assert mixed is not None
    assert f"{files.cert} and {other.key} are no certificate with its own key" in mixed
    other.cert.write_text("nonsense")
    broken = tls_problem(TlsFiles(cert=files.cert, key=files.key, ca=other.cert), "localhost")
    assert broken is not None
    assert f"{other.cert} is no certificate" in broken


def test_an_encrypted_key_is_refused_without_a_question(files: TlsFiles, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    words = ["openssl", "ec", "-in", str(files.key), "-aes256", "-passout", "pass:sesame", "-out", str(locked)]
    subprocess.run(words, check=True, capture_output=True)
    problem = tls_problem(TlsFiles(cert=files.cert, key=locked, ca=files.ca), "localhost")
    assert problem is not None
    assert "unencrypted" in problem


def test_a_missing_file_is_named(files: TlsFiles, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the TLS file .*none\.crt cannot be read: No such file"):
        tls_problem(TlsFiles(cert=tmp_path / "none.crt", key=files.key, ca=None), "localhost")


def test_without_openssl_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs the program openssl"):
        make_certificates(made_files(tmp_path), "localhost")


def test_what_openssl_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "openssl"
    fake.write_text("#!/bin/sh\necho no entropy >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="openssl req failed with 3: no entropy"):
        make_certificates(made_files(tmp_path), "localhost")
