"""TLS by a certificate and its key, in two files."""

from __future__ import annotations

import ssl

from shortlist.errors import BadInput
from shortlist.server.settings import Settings


def make_context(settings: Settings) -> ssl.SSLContext:
    """TLS 1.2 or later with the ciphers that Python recommends, and the certificate of the settings.

    Raises BadInput.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Let new connections of `context` use what the files hold now; raises BadInput."""
    assert settings.tls_cert is not None, "settings that ask for TLS name a certificate"
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used ({reason}): "
            "give two PEM files that belong together, the key without a password"
        ) from None
