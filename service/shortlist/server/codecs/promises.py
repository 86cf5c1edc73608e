"""The promise in force, as answers tell it."""

from __future__ import annotations

from shortlist.bundle.manifest import Manifest


def read_promise(manifest: Manifest, normalizer: str, k: int) -> dict[str, float]:
    """`promise`, the mean P@k that an answer's search was to keep; nothing where none was made, or needed."""
    promise = manifest.find_promise(normalizer, k)
    return {} if promise is None else {"promise": promise}
