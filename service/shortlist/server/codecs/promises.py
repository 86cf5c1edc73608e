"""The promise in force, as answers tell it."""

from __future__ import annotations

from shortlist.bundle.manifest import Manifest


def read_promise(manifest: Manifest, normalizer: str) -> dict[str, float]:
    """`promise`, the mean P@k that the search for an answer was to keep; nothing where none was made, or needed."""
    promise = manifest.find_promise(normalizer)
    return {} if promise is None else {"promise": promise}
