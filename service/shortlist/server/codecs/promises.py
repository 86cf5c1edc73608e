"""The promise in force, as answers tell it."""

from __future__ import annotations

from shortlist.bundle.manifest import Manifest

WITHOUT_MISSES = ("exact", "bounded")  # normalizers of answers that miss no class: nothing is promised beside that


def read_promise(manifest: Manifest, normalizer: str) -> dict[str, float]:
    """`promise`, the mean P@k that the search for an answer was to keep; nothing where none was made, or needed."""
    promise = manifest.promise
    return {} if promise is None or normalizer in WITHOUT_MISSES else {"promise": promise}
