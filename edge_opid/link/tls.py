"""TLS, for a link whose broker speaks it. The one file that imports ssl.

Import it late: with OpenSSL it takes 4 MB, and most brokers at home are asked in plain words.
"""

from __future__ import annotations

import ssl

from edge_opid.link.contract import LinkError
from edge_opid.link.options import TlsFiles, refuse_if_readable_by_others

NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block says where it would."""
ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # a broker that went


def is_refused(error: BaseException) -> bool:
    """Whether the two could not agree, rather than that the broker went away meanwhile."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ENDED)


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """A client's TLS context: the broker's name and certificate are always checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = _TidySocket
    try:
        context.load_verify_locations(cafile=files.ca)
        if files.certificate is not None:
            key = files.key or files.certificate
            refuse_if_readable_by_others(key, key.stat().st_mode)
            context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        if isinstance(error, LinkError):
            raise
        raise LinkError(f"TLS files {_names(files)} cannot be used: {error}") from error
    return context


class _TidySocket(ssl.SSLSocket):
    """Closes itself when the handshake fails, where paho would leave it to the collector."""

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands, or close."""
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def _names(files: TlsFiles) -> str:
    return ", ".join(str(path) for path in (files.ca, files.certificate, files.key) if path)
