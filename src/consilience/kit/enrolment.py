"""Enrolment of sites for a live run: certificates from the roster, and the configuration of the server of files.

The coordinator's authority signs the public keys that the roster has. Nobody sends a secret: the private key of a site
is its ``identity.pem``, and what it gets back is public unless it has a password.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from consilience.errors import InvalidInputError
from consilience.files.json_text import parse_json, read_text, replace_file, write_json
from consilience.kit.folder import SiteIdentity
from consilience.kit.private_files import slug
from consilience.kit.roster import KEY_BYTES, NEEDED, Roster, decode_key

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = "consilience enrolment"
FIT = re.compile(r"[A-Za-z0-9._/:\[\]-]+")
"""Paths, addresses and names that need no quotes in the configuration of nginx."""
DAYS, RENEWED = 800, 90
"""Days for which a certificate is valid; one with fewer days left than the second is issued again."""
AUTHORITY = "consilience coordinator"
AUTHORITY_KEY, SERVER, ENROL = "authority.pem", "server", "enrol"
"""In the coordinator's own folder: the key of the authority, what the server needs, and a file for each site."""
AUTHORITY_FILE, SERVER_FILE, SERVER_KEY = "authority.crt", "server.crt", "server.key"
SITES_MAP, PASSWORDS_MAP = "sites.map", "passwords.map"


@dataclass(frozen=True)
class Enrolment:
    """What a site gets to reach its letters.

    Parameters
    ----------
    site : str
        Name of the site's folders in the store.
    address : str
        ``https://host[:port]``.
    certificate : str
        Certificate of the site's public key, in PEM.
    authority : str
        Certificate of who signed it, and the server's, in PEM.
    password : str
        ``SITE:PASSWORD`` where a proxy reads the traffic; the file is then a secret. Empty if there is none.
    """

    site: str
    address: str
    certificate: str
    authority: str
    password: str = field(default="", repr=False)

    def to_text(self) -> str:
        """Return the file as JSON text."""
        said = {"site": self.site, "address": self.address, "certificate": self.certificate}
        secret = {"password": self.password} if self.password else {}
        return write_json({"format": FORMAT, "version": 1, **said, "authority": self.authority, **secret}) + "\n"

    @classmethod
    def read(cls, path: Path) -> Enrolment:
        """Read an enrolment; raise an error if the file is something else."""
        found = parse_json(read_text(path, "an enrolment"), "an enrolment")
        if not isinstance(found, dict) or (found.pop("format", ""), found.pop("version", 0)) != (FORMAT, 1):
            raise InvalidInputError(f"{path.name} is not an enrolment of version 1")
        names = {"site", "address", "certificate", "authority"}
        if set(found) - {"password"} != names or not all(isinstance(each, str) for each in found.values()):
            raise InvalidInputError(f"{path.name} is not a valid enrolment: ask the coordinator for it again")
        return cls(**found)


def enrol_sites(own: Path, roster: Roster, address: str, passwords: Collection[str] = ()) -> dict[str, Enrolment]:
    """Write certificates of the sites of a roster, and of the server, into the coordinator's folder.

    A certificate that is there stays if it is of the site's key and has time left, and so does a password. Sites that
    are no longer in the roster, and earlier certificates, are not known to the server once it has read its files again.

    Parameters
    ----------
    own : Path
        Folder of the coordinator; the authority is made in it once.
    roster : Roster
    address : str
        ``https://host[:port]`` by which sites reach the server.
    passwords : collection of str
        Names of sites that get a password, since a proxy reads their traffic.

    Returns
    -------
    dict of str to Enrolment
        By the names of the sites' folders in the store.

    Raises
    ------
    InvalidInputError
        If a site has no key, two sites have the same name of a folder, or the address has another form.
    ImportError
        If the package cryptography is missing.
    """
    keys, asked = _keys_of(roster), {slug(name) for name in passwords}
    if unknown := asked - set(keys):
        raise InvalidInputError(f"{', '.join(sorted(unknown))} gets a password and is not in the roster")
    host = host_of(address)
    for folder in (own, own / SERVER, own / ENROL):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority.of(own)
    authority.certify_server(own / SERVER, host)
    found: dict[str, Enrolment] = {}
    for name, key in keys.items():
        path = own / ENROL / f"{name}.json"
        former = Enrolment.read(path) if path.exists() else None
        kept = "" if former is None else authority.still_good(former.certificate, key)
        password = former.password if former is not None else ""
        found[name] = Enrolment(
            name,
            address,
            kept or authority.certify(name, key),
            authority.text,
            (password or f"{name}:{secrets.token_urlsafe(24)}") if name in asked else "",
        )
        _write_private(path, found[name].to_text())
    _write_private(own / SERVER / AUTHORITY_FILE, authority.text)
    _write_private(own / SERVER / SITES_MAP, _sites_map(found))
    _write_private(own / SERVER / PASSWORDS_MAP, _passwords_map(found))
    return found


def host_of(address: str) -> str:
    """Return the host of an address; raise an error for another form than ``https://host[:port]``."""
    with suppress(ValueError):
        parts = urlsplit(address)
        whole = parts.netloc == address.removeprefix("https://") and "@" not in parts.netloc
        if parts.scheme == "https" and parts.hostname and whole and parts.port != 0:
            return parts.hostname
    raise InvalidInputError("expected an address https://host[:port], and nothing after it")


def _keys_of(roster: Roster) -> dict[str, Ed25519PublicKey]:
    """Return the public keys of the sites, by the names of their folders."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise ImportError(NEEDED) from error
    if missing := [name for name in roster.names if name not in roster.keys]:
        raise InvalidInputError(f"the roster has no key of {', '.join(missing)}: a live run needs one of each site")
    texts = {slug(name): key for name, key in roster.keys.items()}
    if len(texts) < len(roster.sites):
        raise InvalidInputError("the names of two sites give the same name of a folder: change one of them")
    return {name: Ed25519PublicKey.from_public_bytes(decode_key(key, KEY_BYTES)) for name, key in texts.items()}


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    try:
        replace_file(path, text.encode())
        path.chmod(0o600)
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be written: {error.strerror}") from error


# ---------------------------------------------------------------- authority


@dataclass(frozen=True)
class Authority:
    """The coordinator's authority: its certificate and its private key.

    Parameters
    ----------
    certificate : x509.Certificate
    key : Ed25519PrivateKey
    """

    certificate: x509.Certificate
    key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def of(cls, own: Path) -> Authority:
        """Return the authority in a coordinator's folder, which is made if there is none."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path, public = own / AUTHORITY_KEY, own / SERVER / AUTHORITY_FILE
        if not path.exists():
            SiteIdentity.new().store(path)
        key = load_pem_private_key(read_text(path, "a private key").encode(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidInputError(f"{AUTHORITY_KEY} is not an Ed25519 key")
        if public.exists():
            found = _loaded(read_text(public, "a certificate"))
            if found.public_key() != key.public_key():
                raise InvalidInputError(f"{AUTHORITY_FILE} is not of the key in {AUTHORITY_KEY}: restore both")
            return cls(found, key)
        return cls(_issued(AUTHORITY, key.public_key(), key, "authority"), key)

    @property
    def text(self) -> str:
        """The certificate in PEM."""
        return _pem(self.certificate)

    def certify(self, name: str, key: Ed25519PublicKey) -> str:
        """Return a certificate of the public key of a site, in PEM."""
        return _pem(_issued(name, key, self.key, "site"))

    def certify_server(self, folder: Path, host: str) -> None:
        """Write key and certificate of a server, unless those of this host are there and have time left."""
        path, key_path = folder / SERVER_FILE, folder / SERVER_KEY
        if not key_path.exists():
            SiteIdentity.new().store(key_path)
        key = _public_key(SiteIdentity.load(key_path))
        former = read_text(path, "a certificate") if path.exists() else ""
        if not (former and self.still_good(former, key) and _name_of(former) == host):
            _write_private(path, _pem(_issued(host, key, self.key, "server")))

    def still_good(self, text: str, key: Ed25519PublicKey) -> str:
        """Return a certificate in PEM if it is this authority's of a key and has time left; empty if not."""
        from cryptography.exceptions import InvalidSignature

        try:
            found = _loaded(text)
            found.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return ""
        is_late = found.not_valid_after_utc < datetime.now(UTC) + timedelta(days=RENEWED)
        return "" if is_late or found.public_key() != key else text


def _public_key(identity: SiteIdentity) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(decode_key(identity.public_key, KEY_BYTES))


def _issued(name: str, public: Ed25519PublicKey, key: Ed25519PrivateKey, use: str) -> x509.Certificate:
    """Return a certificate for a use: ``authority``, ``server`` or ``site``."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    is_authority, now = use == "authority", datetime.now(UTC)
    days = timedelta(days=5 * DAYS if is_authority else DAYS)
    serial = x509.random_serial_number()
    made = x509.CertificateBuilder(_named(AUTHORITY), _named(name), public, serial, now - timedelta(days=1), now + days)
    made = made.add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
    made = made.add_extension(_usage(is_authority), critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    if use == "server":
        made = made.add_extension(x509.SubjectAlternativeName([_alternative(name)]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    elif use == "site":
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    return made.sign(key, None)


def _usage(is_authority: bool) -> x509.KeyUsage:
    """Return what a key may be used for: to sign certificates and their revocation, or to sign."""
    from cryptography import x509

    signs, rest = not is_authority, (False, False, False, False)
    return x509.KeyUsage(signs, *rest, is_authority, is_authority, False, False)


def _named(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _loaded(text: str) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(text.encode())


def _name_of(text: str) -> str:
    (name,) = _loaded(text).subject
    return str(name.value)


# ---------------------------------------------------------------- nginx


def _sites_map(found: Mapping[str, Enrolment]) -> str:
    """Return the lines by which nginx knows the certificate of each site: its subject and its number."""
    serials = {name: f"{_loaded(each.certificate).serial_number:X}" for name, each in found.items()}
    padded = {name: serial.zfill(len(serial) + len(serial) % 2) for name, serial in serials.items()}
    return "".join(f'"SUCCESS|CN={name}|{serial}" {name};\n' for name, serial in padded.items())


def _passwords_map(found: Mapping[str, Enrolment]) -> str:
    """Return the lines by which nginx knows the password of each site that has one."""
    known = {name: b64encode(each.password.encode()).decode() for name, each in found.items() if each.password}
    return "".join(f'"Basic {text}" {name};\n' for name, text in known.items())


CONFIGURATION = """\
# Letters of a run over HTTPS: a site reads to/SITE/, writes its own answers into from/SITE/, and sees nothing else.
# Written by 'consilience live nginx'. Check it with 'nginx -t -c FILE', start it with 'nginx -c FILE'.
{user}worker_processes 1;
worker_rlimit_nofile 8192;
pid {store}/nginx.pid;
error_log {store}/nginx-error.log warn;
events {{ worker_connections 4096; }}
http {{
  log_format letters '$time_iso8601 site=$site status=$status $request_method $uri in=$request_length out=$bytes_sent';
  access_log {store}/nginx-access.log letters;
  client_body_temp_path {store}/.incoming;  # on the disk of from/: nginx renames, and an answer appears whole
  proxy_temp_path {store}/.unused;
  fastcgi_temp_path {store}/.unused;
  uwsgi_temp_path {store}/.unused;
  scgi_temp_path {store}/.unused;
  types {{ application/json json; text/plain toml; }}
  map_hash_bucket_size 256;
  map_hash_max_size 65536;
  # Which site asks: by its certificate, else by its password.
  map "$ssl_client_verify|$ssl_client_s_dn|$ssl_client_serial" $by_certificate {{
    default "";
    include {server}/sites.map;
  }}
  map $http_authorization $by_password {{
    default "";
    include {server}/passwords.map;
  }}
  map $by_certificate $site {{
    default $by_certificate;
    "" $by_password;
  }}
  server {{
    listen {listen} ssl;
    server_name _;
    server_tokens off;
    ssl_certificate {server}/server.crt;
    ssl_certificate_key {server}/server.key;
    ssl_protocols TLSv1.3;
    ssl_client_certificate {server}/authority.crt;
    ssl_verify_client optional;
    ssl_verify_depth 1;
    client_max_body_size 64m;
    client_body_timeout 60s;
    keepalive_timeout 75s;
    keepalive_requests 100000;
    max_ranges 0;
    set $pair "";
    location ~ "^/to/(?<to>[a-z0-9-]+)/(?<file>[a-zA-Z0-9][a-zA-Z0-9._-]*)?$" {{
      if ($site = "") {{ return 401; }}
      set $pair "$to|$site";
      if ($pair !~ "^(?<one>[a-z0-9-]+)\\|\\k<one>$") {{ return 403; }}
      limit_except GET {{ deny all; }}
      root {store};
      autoindex on;
      autoindex_format json;
    }}
    location ~ "^/from/(?<from>[a-z0-9-]+)/round-[0-9]{{2,6}}\\.answer\\.(?<who>[a-z0-9-]+)\\.json$" {{
      if ($site = "") {{ return 401; }}
      set $pair "$from|$who|$site";
      if ($pair !~ "^(?<all>[a-z0-9-]+)\\|\\k<all>\\|\\k<all>$") {{ return 403; }}
      limit_except PUT {{ deny all; }}
      root {store};
      dav_methods PUT;
      dav_access user:rw group:r;
      create_full_put_path on;
    }}
    location / {{ return 404; }}
  }}
}}
"""


def nginx_configuration(own: Path, store: Path, listen: str, user: str = "") -> str:
    """Return the whole configuration of nginx for a store.

    Parameters
    ----------
    own : Path
        Folder of the coordinator, in which sites were enrolled.
    store : Path
        Folder of the letters, to which nginx can write.
    listen : str
        ``[address:]port``.
    user : str
        User as whom nginx works, if it is started by root; that of its installation if empty.
    """
    server = own.resolve() / SERVER
    if not (server / SITES_MAP).exists():
        raise InvalidInputError(f"no site was enrolled in {own.name}: run 'consilience live enrol' before")
    filled = {"store": store.resolve(), "server": server, "listen": listen, "user": user or "none"}
    if unfit := [name for name, each in filled.items() if not FIT.fullmatch(str(each))]:
        raise InvalidInputError(f"{', '.join(unfit)}: expected letters, digits and ._/:[]-, without spaces")
    return CONFIGURATION.format(**filled | {"user": f"user {user};\n" if user else ""})
