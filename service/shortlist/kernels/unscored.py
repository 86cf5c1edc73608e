"""Values of `scored`, the number of classes scored, that say why a scorer has no answer for a row."""

from __future__ import annotations

TO_DENSE = -1  # the dense head has to answer: the two best clusters are too close
TO_GRAPHS = 0  # the clusters' graphs have to answer: the row opens more clusters than the scorer can
