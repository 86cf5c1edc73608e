"""LSH-MIPS (Neyshabur and Srebro, "On Symmetric and Asymmetric LSHs for Inner Product Search", ICML 2015: Simple-LSH).

Rows scaled into the unit ball are lifted to [x; sqrt(1 - |x|^2)], queries of norm 1 to [q; 0], and hashed by the signs
of random projections: the chance that a bit agrees grows with the inner product. Each of L tables has codes of K bits.

The paper looks into one bucket a table. With few tables of many bits it would find little, so each table is probed in
the order of the least total |projection| over the bits in which a bucket's code differs from the query's (Lv et al.,
"Multi-Probe LSH", VLDB 2007). One probe is the paper's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import BASES, load_basis, rescore_candidates

TABLE_COUNTS = (8, 32)
BUCKET_ROWS = (64, 16)  # about so many in a bucket
MEETINGS_PER_ROW = 2  # probing stops where each row would be met so often, were all buckets alike
LSH_SEED = 0


@dataclass(frozen=True)
class Table:
    """Buckets of one table: rows[starts[c] : starts[c + 1]] are those of code c.

    starts: [2^K + 1] int64. rows: [V] int32.
    """

    starts: IdArray
    rows: npt.NDArray[np.int32]

    def bucket(self, code: int) -> npt.NDArray[np.int32]:
        """Positions of the rows whose code is `code`."""
        return self.rows[self.starts[code] : self.starts[code + 1]]


def make_table(codes: IdArray, bits: int) -> Table:
    """The table of rows with `codes` [V] of so many bits."""
    order = np.argsort(codes, kind="stable")
    return Table(np.searchsorted(codes[order], np.arange(2**bits + 1)), order.astype(np.int32))


def compute_codes(projections: FloatArray) -> IdArray:
    """[..., K] -> [...]: signs as a number, the first bit the highest."""
    return (projections >= 0) @ (1 << np.arange(projections.shape[-1])[::-1])


def code_distances(projections: FloatArray) -> FloatArray:
    """[L, K] -> [L, 2^K]: for each code, the sum of |projection| over the bits in which it is not the query's."""
    total = np.zeros((len(projections), 1), np.float32)
    for along in projections.T[:, :, None]:
        zero, one = total + np.maximum(along, 0), total + np.maximum(-along, 0)
        total = np.stack([zero, one], axis=2).reshape(len(projections), -1)
    return total


def lift_to_sphere(rows: FloatArray) -> FloatArray:
    """[V, D] -> [V, D + 1] of norm 1."""
    squares = np.square(rows, dtype=np.float64).sum(axis=1)
    share = squares / squares.max()
    return np.column_stack([rows / np.sqrt(squares.max()), np.sqrt(1 - share)]).astype(np.float32)


class LshMips(Contender):
    """Setting `probes`: buckets of each table; the union of their rows is scored exactly."""

    name: ClassVar[str] = "LSH-MIPS"
    quick: ClassVar[bool] = False

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        widths = sorted({max(1, round(log2(dense.classes / rows))) for rows in BUCKET_ROWS})
        return [
            {"basis": basis, "tables": tables, "bits": bits}
            for bits in widths
            for tables in TABLE_COUNTS
            for basis in BASES
        ]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.dense = dense
        self.basis = load_basis(self.build["basis"], dense, contexts)
        points = lift_to_sphere(self.basis.rows)
        shape = (points.shape[1], self.build["tables"] * self.build["bits"])
        directions = np.random.default_rng(LSH_SEED).standard_normal(shape, np.float32)
        codes = compute_codes(self.split_by_table(points @ directions))
        self.tables = [make_table(column, self.build["bits"]) for column in codes.T]
        self.directions = np.ascontiguousarray(directions[:-1])  # a lifted query ends in 0

    def split_by_table(self, projections: FloatArray) -> FloatArray:
        """[n, L K] -> [n, L, K]."""
        return projections.reshape(len(projections), self.build["tables"], self.build["bits"])

    def settings(self) -> list[Options]:
        """The last ones meet most of the classes."""
        most = max(1, MEETINGS_PER_ROW * 2 ** self.build["bits"] // self.build["tables"])
        return [{"probes": 2**power} for power in range(most.bit_length())]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """A query's length changes no sign and no order of probes, so it stays what it is."""
        projections = self.split_by_table(self.basis.queries(contexts) @ self.directions)
        candidates = [self.basis.ids[self.find_candidates(rows)][None] for rows in projections]
        ids = [
            rescore_candidates(self.dense, context[None], ids, k)
            for context, ids in zip(contexts, candidates, strict=True)
        ]
        return np.concatenate(ids)

    def find_candidates(self, projections: FloatArray) -> IdArray:
        """Positions of the rows in the probed buckets of a query with `projections` [L, K], each once."""
        far = code_distances(projections)
        probes = min(self.setting.get("probes", 1), far.shape[1])
        codes = np.argpartition(far, probes - 1, axis=1)[:, :probes]
        is_candidate = np.zeros(len(self.basis.ids), bool)
        for table, probe_codes in zip(self.tables, codes, strict=True):
            for code in probe_codes:
                is_candidate[table.bucket(code)] = True
        return is_candidate.nonzero()[0]

    def size(self) -> int:
        tables = sum(table.starts.nbytes + table.rows.nbytes for table in self.tables)
        return tables + self.directions.nbytes + self.basis.change_bytes + self.dense.weight.nbytes
