"""The search of plan `grouped` by compiled loops: its tables, laid out as loops read them, and the call."""

from __future__ import annotations

from ctypes import byref
from functools import partial
from typing import Any, Self

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import GroupedSettings
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.kernels.lists import point_at_lists, point_at_marks
from shortlist.kernels.native.arguments import check_memory, point_at
from shortlist.kernels.native.library import open_kernels, require_kernels
from shortlist.kernels.primitives.arrays import Arrays, as_carray
from shortlist.kernels.primitives.layout import (
    LANE_BYTES,
    LINE_BYTES,
    Bytes,
    arrange_blocks,
    join_small,
    pad_columns,
    pad_lanes,
    pad_to_lines,
    place_in_blocks,
    shift_to_unsigned,
)
from shortlist.runtime.parallel import ThreadedRows
from shortlist.runtime.shared_tables import share_table

from .answers import GroupAnswers, SearchPlan
from .effort import Search, make_search
from .previews import lay_out_previews
from .tables import Tables, make_struct

MAX_COPY_BYTES = 1 << 28  # of int8 rows that a process copies for itself; more of them stay mapped

Parts = dict[str, Any]  # tables by the names of their fields


class CompiledSearch:
    """Searches contexts by compiled loops. Threads may share it."""

    def __init__(self, bundle: Bundle, arrays: Arrays, threads: int) -> None:
        """Lay out `arrays` of index.safetensors and map the rows. Raises NoLibrary."""
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        self.tables = lay_out_tables(bundle, arrays)  # must live as long as their addresses are used
        tail = float(arrays["tail_offset"][0]), bundle.settings(GroupedSettings).tail_limit
        preview_lines = -(-arrays["preview"].shape[1] // LANE_BYTES)
        logit_scale, soft_cap = bundle.finishing
        self.struct = make_struct(self.tables, preview_lines, (logit_scale, soft_cap or 0.0, *tail))
        self.pointer = byref(self.struct)

    @classmethod
    def open(cls, bundle: Bundle, arrays: Arrays, threads: int) -> Self | None:
        """Open the loops; None without a library, and where the bundle has no arrays for them."""
        has_arrays = bundle.has_arrays("search_codes", "search_weight")
        return cls(bundle, arrays, threads) if has_arrays and open_kernels() is not None else None

    def __call__(
        self, contexts: FloatArray, search: Search, class_filter: ClassFilter, features: FloatArray | None = None
    ) -> PlanResult:
        """Search `contexts` [B, d] float32; `scored` is the number of the last look's candidates.

        It is under V unless all classes are scored exactly. features: [B, EFFORT_FEATURES], gets what the
        last look tells of each row.
        """
        rows, result = len(contexts), empty_result(len(contexts), search.k)
        if rows and search.k:
            marks = class_filter.permitted
            lists = point_at_lists(class_filter, rows) if marks is None else point_at_marks(class_filter, marks, rows)
            result.risk = np.empty(rows, np.float32)
            arrays = as_carray(contexts), result.ids, result.logits, result.log_normalizer, result.scored, result.risk
            last = None if features is None else point_at(features)
            arguments = self.pointer, make_search(search), lists, *map(point_at, arrays), last
            self.threaded_rows(partial(self.fill_some, *arguments), rows)
        return result

    def open_row_answers(self, max_k: int, max_rows: int, plan: SearchPlan) -> GroupAnswers:
        """What answers up to `max_rows` rows for k up to `max_k`, searching as the plan says."""
        self.struct.tables = self.tables  # which it reads as long as it lives
        dim, classes = self.tables.rows.shape[1], self.tables.places.size
        function = self.kernels.answer_rows_of_groups
        threads = self.threaded_rows
        return GroupAnswers(function, self.pointer, dim, plan, max_k, max_rows, threads, classes)

    def fill_some(self, *arguments: Any) -> None:
        check_memory(self.kernels.search_rows(*arguments), "for a search")


def find_places(arrays: Arrays, classes: int) -> IdArray:
    """The place [V] of each class among the lanes of all blocks, -1 where the head has none for it."""
    places = np.full(classes, -1, np.int64)
    places[arrays["order"]] = place_in_blocks(arrays["block_starts"])
    return places


def lay_out_tables(bundle: Bundle, arrays: Arrays) -> Tables:
    """Lay out all tables of a bundle; arrays: of its index.safetensors."""
    own = lay_out_projection(arrays) | lay_out_groups(arrays) | lay_out_blocks(arrays) | lay_out_classes(bundle, arrays)
    return Tables(
        **join_small(own),
        **lay_out_previews(bundle.manifest.digest, arrays),
        codes=lay_out_codes(bundle),
        rows=bundle.map_array("search_weight"),
    )


def lay_out_projection(arrays: Arrays) -> Arrays:
    """Lay out the projection's columns as rows in blocks, an even number of lines in each; and the tail."""
    codes, scale = arrays["projection"], arrays["projection_scale"]
    return {
        "projection": arrange_blocks(pad_lanes(shift_to_unsigned(pad_columns(codes, 2 * LANE_BYTES)))),
        "projection_scale": pad_lanes(scale),
        "row_mean": arrays.get("row_mean", np.zeros_like(arrays["tail"])),
        "tail": arrays["tail"],
        "tail_terms": arrays.get("tail_terms", np.empty((0, codes.shape[1]), np.float32)),
        "tail_term_offsets": arrays.get("tail_term_offsets", np.empty(0, np.float32)),
    }


def lay_out_groups(arrays: Arrays) -> Arrays:
    """Lay out the groups' centres, in blocks of sixteen groups each."""
    sizes = np.diff(arrays["starts"])
    return {
        "centres": arrange_blocks(pad_lanes(shift_to_unsigned(pad_columns(arrays["group_codes"], LANE_BYTES)))),
        "centre_scale": pad_lanes(arrays["group_scale"]),
        "centre_fine_scale": pad_lanes(arrays.get("group_fine_scale", arrays["group_scale"])),
        "raises": arrays.get("group_raise", np.zeros_like(arrays["group_reach"])),
        "reach": arrays["group_reach"],
        "sizes": sizes.astype(np.int32),
        "group_blocks": np.searchsorted(arrays["block_starts"], arrays["starts"]),
    }


def lay_out_blocks(arrays: Arrays) -> Arrays:
    """List where blocks of classes begin, and how many classes each holds."""
    starts = arrays["block_starts"].astype(np.int32)
    return {
        "firsts": starts[:-1].copy(),
        "filled": np.diff(starts),
    }


def lay_out_classes(bundle: Bundle, arrays: Arrays) -> Parts:
    """Lay out the classes' ids, and what belongs to their rows in int8."""
    return {
        "order": arrays["order"],
        "places": find_places(arrays, bundle.manifest.classes),
        "code_scale": arrays["code_scale"],
        "code_bias": arrays.get("bias"),
    }


def lay_out_codes(bundle: Bundle) -> Bytes:
    """Copy int8 rows into whole cache lines, in large pages; many rows of whole lines stay mapped instead."""
    codes = bundle.map_array("search_codes")
    if codes.nbytes > MAX_COPY_BYTES and not codes.shape[1] % LINE_BYTES:
        return codes
    return share_table(bundle.manifest.digest, "codes", lambda: pad_to_lines(codes))
