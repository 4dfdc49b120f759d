"""How to reach a server: the user's proxies, certificates and credentials."""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import os
import ssl
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # the types do not know it

from verl_doctor.toolkit.index.settings import IndexSettings


class WebError(Exception):
    """A server did not return what was requested: one sentence without credentials.

    `status` is 0 without a response.
    """

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.status = status


class Access:
    """Opens connections. Credentials in an address apply to the whole host, as with pip."""

    def __init__(self, settings: IndexSettings) -> None:
        self._settings = settings
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._logins: dict[str, str] = {}

    def known(self, url: str) -> SplitResult:
        """Parse an address; its user and password are stored for its host and removed. Raises WebError."""
        try:
            where = urlsplit(url)
            host, port = where.hostname or "", where.port
        except ValueError:
            raise WebError(f"{shown(url)} is not an address") from None
        if where.scheme not in {"http", "https"} or not host:
            raise WebError(f"{shown(url)} does not begin with http:// or https://")
        netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        if where.username:
            self._logins[netloc] = _basic(where)
        return where._replace(netloc=netloc, fragment="")

    def connection(self, where: SplitResult, timeout: float) -> http.client.HTTPConnection:
        """Return a new connection that is not yet open. Raises WebError."""
        proxy = self._proxy(where)
        through = proxy or where
        host, port = through.hostname or "", through.port
        if where.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context(where))
        if proxy:
            connection.set_tunnel(where.hostname or "", where.port or 443, _to_proxy(proxy))
        return connection

    def request(self, where: SplitResult) -> tuple[str, dict[str, str]]:
        """Return the request target, and the authentication headers.

        A proxy that does not tunnel gets the whole address.
        """
        if where.netloc not in self._logins:
            self._logins[where.netloc] = self._from_netrc(where.hostname or "")
        login = self._logins[where.netloc]
        headers = {"Authorization": login} if login else {}
        if where.scheme == "http" and (proxy := self._proxy(where)):
            return where.geturl(), {**headers, **_to_proxy(proxy)}
        return (where.path or "/") + (f"?{where.query}" if where.query else ""), headers

    def _proxy(self, where: SplitResult) -> SplitResult | None:
        environ = self._settings.environ
        without = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        if without and proxy_bypass_environment(where.netloc, {"no": without}):
            return None
        names = (f"{where.scheme}_proxy", f"{where.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
        named = self._settings.proxy or next(filter(None, map(environ.get, names)), None)
        if not named:
            return None
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        if proxy.scheme not in {"http", "https"}:
            raise WebError(f"the proxy {shown(named)} is of an unsupported kind; name an HTTP proxy")
        return proxy

    def _context(self, where: SplitResult) -> ssl.SSLContext:
        """Return how the server's certificate is verified."""
        trusted = bool({where.hostname, where.netloc} & set(self._settings.trusted))
        if trusted not in self._contexts:
            ca, own = self._settings.ca, self._settings.client_certificate
            try:
                context = ssl.create_default_context(
                    cafile=None if os.path.isdir(ca) else ca or None, capath=ca if os.path.isdir(ca) else None
                )
                if own:
                    context.load_cert_chain(own)
            except OSError as error:
                files = " and ".join(filter(None, (ca, own)))
                raise WebError(
                    f"the certificates in {files} cannot be used: {error.strerror or error}"
                ) from None
            if trusted:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._contexts[trusted] = context
        return self._contexts[trusted]

    def _from_netrc(self, host: str) -> str:
        environ = self._settings.environ
        file = Path(environ.get("NETRC") or Path(environ.get("HOME") or Path.home(), ".netrc"))
        with contextlib.suppress(OSError, netrc.NetrcParseError, ValueError):
            if found := netrc.netrc(str(file)).authenticators(host):
                return _encoded(found[0] or "", found[2] or "")
        return ""


def shown(url: str) -> str:
    """Return an address without user, password and query, which is safe to print and keep."""
    try:
        where = urlsplit(url)
    except ValueError:
        return "the address"
    return where._replace(netloc=where.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _encoded(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _basic(where: SplitResult) -> str:
    return _encoded(unquote(where.username or ""), unquote(where.password or ""))


def _to_proxy(proxy: SplitResult) -> dict[str, str]:
    return {"Proxy-Authorization": _basic(proxy)} if proxy.username else {}
