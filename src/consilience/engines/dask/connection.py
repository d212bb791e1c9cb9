"""Rules for the use of a Dask cluster, connection to it, and error messages."""

from __future__ import annotations

import asyncio
import logging
import platform
import ssl
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

from consilience._version import __version__
from consilience.errors import EngineError, InvalidInputError

T = TypeVar("T")
CONNECT_SECONDS = 10
IMPORT_SECONDS = 120
"""Time for workers to import this package, which may be slow from a shared disk."""
CLOSE_SECONDS = 20
ENCRYPTED = ("tls", "wss")
PLAIN = ("tcp", "ws")
NEVER = logging.CRITICAL + 1
LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application", "bokeh")


def distributed() -> Any:
    """Import ``distributed``, or raise an error with the command that installs it."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ImportError("DaskCluster needs Dask: pip install 'consilience[dask]'") from error


def dask() -> Any:
    """Import ``dask``, for its configuration."""
    return import_module("dask")


def validate_address(address: str, security: Any, *, insecure: bool) -> str:
    """Return the address with its scheme, or raise an error if its use is not allowed."""
    address = address if "://" in address else f"tcp://{address}"
    parts = urlsplit(address)
    if parts.scheme not in ENCRYPTED + PLAIN or not parts.hostname or parts.port is None:
        raise EngineError(f"{address!r} is not the address of a scheduler: expected tls://host:port")
    if parts.scheme in PLAIN and not (insecure or is_loopback(parts.hostname)):
        raise EngineError(
            f"{address} is neither encrypted nor on this machine, and Dask runs the code of whoever reaches its port: "
            "use tls:// with security=, or insecure=True in a network that you trust"
        )
    if parts.scheme in ENCRYPTED and security is None:
        raise EngineError(
            f"{address} needs certificates: pass security=distributed.Security(tls_ca_file=..., tls_client_cert=..., "
            "tls_client_key=...)"
        )
    if parts.scheme in PLAIN and security is not None and security.require_encryption:
        raise EngineError(f"{address} is not encrypted, which security requires: use tls://")
    return address


def is_loopback(host: str) -> bool:
    """Whether a host is the loopback interface of this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def connect(address: str, security: Any) -> Any:
    """Connect a client to the scheduler at ``address``, or raise an error with the reason."""
    arguments = connection_arguments(address, security)
    reason: list[str] = []

    def attempt() -> None:
        reason.extend(asyncio.run(refusal(address, arguments)))

    # A client that fails to connect leaves threads behind, so a bare connection is tried first, in a loop of its own.
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    if reason:
        raise EngineError(f"cannot use the scheduler at {address}: {reason[0]}")
    try:
        return distributed().Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except OSError as error:
        raise EngineError(f"cannot use the scheduler at {address}: {describe_error(error, address)}") from error


def connection_arguments(address: str, security: Any) -> dict[str, Any]:
    """Return the arguments of a connection with ``security``; raise an error for certificates that cannot be read."""
    if security is None:
        return {}
    try:
        arguments: dict[str, Any] = security.get_connection_args("client")
    except (OSError, ssl.SSLError) as error:
        raise EngineError(f"the certificates in security cannot be used: {describe_error(error)}") from error
    if address.startswith(ENCRYPTED) and arguments["ssl_context"] is None:
        raise EngineError(
            f"{address} needs a certificate of this client: security has no tls_ca_file or no tls_client_cert"
        )
    return arguments


async def refusal(address: str, arguments: dict[str, Any]) -> list[str]:
    """Try to connect; return the reason of a failure, or an empty list."""
    attempt = distributed().connect(address, timeout=CONNECT_SECONDS, **arguments)
    try:
        comm = await asyncio.wait_for(attempt, CONNECT_SECONDS + 1)
        await comm.close()
    except (OSError, TimeoutError) as error:
        return [describe_error(error, address)]
    return []


def describe_error(error: BaseException, address: str = "") -> str:
    """Describe a connection error, in plain words if the cause is known."""
    texts = " ".join(f"{type(e).__name__} {e}" for e in _causes(error))
    closed = "it closed the connection; if it requires TLS, use tls:// and pass security="
    if address.startswith(ENCRYPTED):  # whether its reason arrives before the end of the connection is a race
        closed = "it refuses our certificate, which must be signed by the authority of the cluster"
    known = {
        "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by the tls_ca_file of security",
        "ALERT": closed,
        "WRONG_VERSION_NUMBER": "it does not use TLS; start it with certificates",
        "KEY_VALUES_MISMATCH": "tls_client_key is not the key of tls_client_cert",
        "FileNotFoundError": "a file named in it was not found",
        "Name or service not known": "no machine has that name",
        "Timed out": f"nothing answered in {CONNECT_SECONDS} s; is it running, and is the port open to this machine?",
        "ConnectionReset": closed,
        "CommClosedError": closed,
        "TimeoutError": "something answered that is not a scheduler",
    }
    return next((sentence for sign, sentence in known.items() if sign in texts), texts.splitlines()[0])


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# ---------------------------------------------------------------- calls


def run_within(client: Any, seconds: float, call: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Return the result of a call in the client's event loop; raise a TimeoutError if it takes longer.

    Dask's own calls wait without limit for a scheduler or a worker that is stopped but not dead. In the event loop of
    the client, its methods return awaitables.
    """

    async def attempt() -> T:
        return await call(*args)

    result: T = client.sync(attempt, callback_timeout=seconds)
    return result


def call_cluster(client: Any, seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call to the cluster, or raise an error if it does not answer."""
    try:
        return run_within(client, seconds, call)
    except TimeoutError:
        raise EngineError(
            f"the cluster has not answered for {seconds:g} s: its scheduler or a worker hangs; restart what hangs"
        ) from None


def close_within(seconds: float, opened: Any) -> None:
    """Close a client or a cluster; what has not ended by then is left to end with this process."""
    with suppress(TimeoutError):
        opened.close(timeout=seconds)


# ---------------------------------------------------------------- versions


def check_versions(client: Any, workers: Collection[str]) -> None:
    """Check that the scheduler and these workers have our versions of Python and of this package."""
    probe = version_probe()

    async def pythons() -> dict[str, str]:
        message = {"op": "versions", "packages": []}
        its = {"the scheduler": await client.scheduler.versions(packages=[])}
        its |= by_worker_name(await client.scheduler.broadcast(msg=message, workers=list(workers), on_error="ignore"))
        return {who: versions["host"]["python"] for who, versions in its.items()}

    async def packages() -> dict[str, tuple[str | None, str]]:
        its = {"the scheduler": await client.run_on_scheduler(probe)}
        return its | by_worker_name(await client.run(probe, workers=list(workers), on_error="ignore"))

    check_pythons(call_cluster(client, CONNECT_SECONDS, pythons), platform.python_version())
    check_packages(call_cluster(client, IMPORT_SECONDS, packages))


def by_worker_name(by_address: dict[str, Any]) -> dict[str, Any]:
    """Return answers of workers by the names that errors give to workers."""
    return {f"worker {address}": answer for address, answer in by_address.items()}


def check_pythons(found: dict[str, str], ours: str) -> None:
    """Raise an error if a member of the cluster has another Python than this process."""
    here = ".".join(ours.split(".")[:2])
    for who, version in found.items():
        python = ".".join(version.split(".")[:2])
        if python != here:
            raise EngineError(f"{who} runs Python {python}, this process Python {here}: use one version everywhere")


def check_packages(found: dict[str, tuple[str | None, str]]) -> None:
    """Raise an error if a member of the cluster has another version of this package, or none."""
    for who, (version, code) in found.items():
        if version not in (None, __version__):
            raise EngineError(
                f"{who} has consilience {version}, this process has {__version__}: install one version everywhere"
            )
        if code:
            raise EngineError(f"{who} cannot import consilience ({code}): install consilience {__version__} there")


def version_probe() -> Any:
    """Return a function that is sent as code, so that it also runs where this package is missing."""

    def probe() -> tuple[str | None, str]:
        import importlib

        version = None
        try:
            version = importlib.import_module("consilience._version").__version__
            importlib.import_module("consilience.engines.dask.submit")
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being imported is the answer
            return version, f"{type(error).__name__}: {error}"
        return version, ""

    return probe


def check_security(security: Any, address: str | None) -> None:
    """Check ``security``: a Dask object, or True for temporary certificates of workers on this machine."""
    if security is True and address is not None:
        raise InvalidInputError(
            "security=True creates certificates for workers that are started here: with an address, pass the "
            "distributed.Security of its cluster"
        )
    if not (security is None or security is True or isinstance(security, distributed().Security)):
        raise InvalidInputError(f"security={security!r}: expected a distributed.Security")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the terminal output of Dask's loggers; other handlers are unchanged."""
    with ExitStack() as stack:
        for logger in map(logging.getLogger, LOGGERS):
            for handler in logger.handlers:
                if type(handler) is logging.StreamHandler:
                    stack.callback(handler.setLevel, handler.level)
                    handler.setLevel(NEVER)
        yield
