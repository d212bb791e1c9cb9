import builtins

import pytest

from consilience.errors import InvalidInputError
from consilience.kit.folder import SiteIdentity
from consilience.kit.roster import decode_key, encode_key, signed_bytes, verify_signature

HASH = f"sha256:{64 * '7'}"


@pytest.fixture(scope="module")
def identity():
    return SiteIdentity.new()


def test_a_signature_fits_its_key_and_its_content(identity):
    signature = identity.sign(HASH)
    assert signature.startswith("ed25519:")
    assert verify_signature(identity.public_key, signature, HASH)
    assert not verify_signature(identity.public_key, signature, HASH.replace("7", "8"))
    assert not verify_signature(SiteIdentity.new().public_key, signature, HASH)
    assert not verify_signature(identity.public_key, encode_key(bytes(64)), HASH)


def test_what_is_signed_is_no_bare_hash(identity):
    raw = encode_key(identity._key.sign(HASH.encode()))
    assert not verify_signature(identity.public_key, raw, HASH)
    with pytest.raises(InvalidInputError, match="expected a content hash"):
        identity.sign("any text")


@pytest.mark.parametrize("signature", [None, 3, "", "ed25519:", "ed25519:%%%", "rsa:AAAA", "ed25519:" + "A" * 10**6])
def test_nonsense_is_no_signature(identity, signature):
    assert not verify_signature(identity.public_key, signature, HASH)


def test_a_second_spelling_of_the_same_bytes_is_refused():
    text = encode_key(bytes(31) + b"\x01")
    assert decode_key(text, 32)
    with pytest.raises(InvalidInputError):
        decode_key(text.replace("E=", "F="), 32)
    assert signed_bytes(HASH).endswith(HASH.encode())


def test_the_key_file_is_read_again_and_never_overwritten(identity, tmp_path):
    path = tmp_path / "identity.pem"
    identity.store(path)
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert SiteIdentity.load(path).public_key == identity.public_key
    assert verify_signature(identity.public_key, SiteIdentity.load(path).sign(HASH), HASH)
    with pytest.raises(InvalidInputError, match="never overwritten"):
        SiteIdentity.new().store(path)
    assert SiteIdentity.load(path).public_key == identity.public_key


def test_the_private_key_is_not_shown(identity):
    assert repr(identity) == f"SiteIdentity({identity.public_key!r})"
    with pytest.raises(TypeError, match="not copied"):
        identity.__reduce__()


def test_other_files_are_no_keys(tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import x25519

    path = tmp_path / "identity.pem"
    path.write_text("no key")
    with pytest.raises(InvalidInputError, match="not a private key"):
        SiteIdentity.load(path)
    path.write_bytes(
        x25519.X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    with pytest.raises(InvalidInputError, match="not an Ed25519 key"):
        SiteIdentity.load(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        SiteIdentity.load(tmp_path / "absent.pem")


@pytest.fixture
def without_cryptography(monkeypatch):
    original = builtins.__import__

    def importing(name, *args, **keywords):
        if name.split(".")[0] == "cryptography":
            raise ImportError(name)
        return original(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_without_the_extra_the_error_names_the_command(identity, without_cryptography, tmp_path):
    for action in (SiteIdentity.new, lambda: SiteIdentity.load(tmp_path / "k"), lambda: verify_signature("", "", HASH)):
        with pytest.raises(ImportError, match=r"python -m pip install 'consilience\[secure\]'"):
            action()
