"""Rows of covariates and responses, read in blocks with features on axis 0; groups stay whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from consilience.model.design import Design
from consilience.model.kernels import NUMPY, Kernel, Workspace, kernel_for
from consilience.numerics.arrays import Array, IntArray, Mask


@dataclass(frozen=True, eq=False)
class GroupBlock:
    """The groups of one block."""

    starts: IntArray  # (G,)    first row of each group within the block
    sizes: IntArray  # (G,)
    panel: Array  # (p, G)    weighted mean of each group's design rows: what a softmax gate reads
    present: Array  # (G,)    1 where the group has any weight, else 0


@dataclass(frozen=True, eq=False)
class Block:
    """A block of n rows in the coordinates of a design; valid until the next block is read.

    Parameters
    ----------
    panel : (p, n) array
        Design rows, features on axis 0.
    Y : (q, n) array
    weight, exposure : (n,) array or None
    groups : GroupBlock or None
    workspace : Workspace
    row_gate_panel : (p_g, n) array or None
        What a gate reads of each row, if not ``panel``.
    kernel : Kernel

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Design, Rows
    >>> (block,) = Rows(np.zeros((5, 2)), np.zeros((5, 1))).blocks(Design.raw(2), size=5)
    >>> block.panel.shape, block.Y.shape
    ((3, 5), (1, 5))
    """

    panel: Array
    Y: Array
    weight: Array | None
    exposure: Array | None
    groups: GroupBlock | None
    workspace: Workspace
    row_gate_panel: Array | None = None
    kernel: Kernel = NUMPY

    @property
    def gate_panel(self) -> Array:
        """What a softmax gate reads: the design row of each row, or the mean of each group."""
        if self.groups is not None:
            return self.groups.panel
        return self.panel if self.row_gate_panel is None else self.row_gate_panel


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of one block, before they are read."""

    index: slice | IntArray  # (n,)
    bounds: IntArray | None  # (G + 1,)  where its groups start
    labels: slice  # its labels among those of all rows


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows sorted by group, as an index into the rows; nothing is copied.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Groups
    >>> groups = Groups.of(np.array([7, 3, 7]))
    >>> groups.order, groups.bounds, groups.codes
    (array([1, 0, 2]), array([0, 1, 3]), array([1, 0, 1]))
    """

    order: IntArray  # (n,)      rows, group after group, in their original order within a group
    bounds: IntArray  # (G + 1,) where each group starts in ``order``
    codes: IntArray  # (n,)      group of each row, 0..G-1

    @classmethod
    def of(cls, labels: np.ndarray) -> Groups:
        """Build the index of the groups given by ``labels (n,)``."""
        _, codes = np.unique(labels, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes)
        return cls(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp), codes.astype(np.intp))

    def first_of_each(self, most: int) -> Mask:
        """Mark the first ``most`` rows of each group, ``(n,)``.

        Examples
        --------
        >>> import numpy as np
        >>> from consilience.model import Groups
        >>> Groups.of(np.array([7, 3, 7, 7])).first_of_each(2)
        array([ True,  True,  True, False])
        """
        place = np.arange(len(self.order)) - np.repeat(self.bounds[:-1], np.diff(self.bounds))
        kept = np.empty(len(self.order), dtype=bool)
        kept[self.order] = place < most
        return kept

    def chunks(self, size: int) -> Iterator[IntArray]:
        """Yield bounds of consecutive groups that together have at most ``size`` rows (or are one group)."""
        G = len(self.bounds) - 1
        first = 0
        while first < G:
            last = int(np.searchsorted(self.bounds, self.bounds[first] + size, side="right")) - 1
            last = min(max(last, first + 1), G)
            yield self.bounds[first : last + 1]
            first = last


@dataclass(frozen=True, eq=False)
class Rows:
    """Covariates and responses, with optional case weights, exposures and groups; arrays are contiguous.

    Parameters
    ----------
    X : (n, d) array
        Raw covariates; ``d`` may be 0 (a Gaussian mixture).
    Y : (n, q) array
        Responses: q real numbers, a class code, or a count.
    weight : (n,) array or None
        Frequency weights.
    exposure : (n,) array or None
        Size of each row, if its family has one: the exposure of a count, or the number of trials.
    groups : Groups or None
        With groups, the latent label belongs to the group.
    clusters : Groups or None
        Rows that are not independent, such as those of a patient: standard errors count clusters. No group is in two.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Design, Rows
    >>> rows = Rows(np.zeros((5, 2)), np.zeros((5, 1)))
    >>> [block.panel.shape for block in rows.blocks(Design.raw(2), size=3)]
    [(3, 3), (3, 2)]
    """

    X: Array
    Y: Array
    weight: Array | None = None
    exposure: Array | None = None
    groups: Groups | None = None
    clusters: Groups | None = None

    def __post_init__(self) -> None:
        """Copy strided views: sums over them have other last bits than over the same rows in another process."""
        for name in ("X", "Y", "weight", "exposure"):
            array = getattr(self, name)
            if array is not None and not array.flags.forc:
                object.__setattr__(self, name, np.ascontiguousarray(array))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.Y)

    def label_clusters(self) -> IntArray | None:
        """Return the cluster of each label, ``(m,)``; None without clusters."""
        if self.clusters is None or self.groups is None:
            return None if self.clusters is None else self.clusters.codes
        return self.clusters.codes[self.groups.order[self.groups.bounds[:-1]]]

    def blocks(self, design: Design, size: int, gate_design: Design | None = None) -> Iterator[Block]:
        """Yield blocks of about ``size`` rows in the coordinates of ``design``; groups are never split.

        ``gate_design`` has the coordinates of what a gate reads, if they are others.
        """
        workspace = Workspace()
        for piece in self.pieces(size):
            yield self.block(piece, design, gate_design, workspace)

    def pieces(self, size: int) -> Iterator[Piece]:
        """Yield the rows of each block, of about ``size`` rows."""
        if self.groups is None:
            for start in range(0, self.n, size):
                here = slice(start, min(start + size, self.n))
                yield Piece(here, None, here)
            return
        done = 0
        for bounds in self.groups.chunks(size):
            labels = slice(done, done + len(bounds) - 1)
            yield Piece(self.groups.order[bounds[0] : bounds[-1]], bounds - bounds[0], labels)
            done = labels.stop

    def block(self, piece: Piece, design: Design, gate_design: Design | None, workspace: Workspace) -> Block:
        """Read a block; the workspace has its panels, and what an earlier block had there is lost."""
        X, index, kernel = self.X[piece.index], piece.index, kernel_for(self.n, design.p)
        panel = design.panel(X, workspace.array("panel", design.p, len(X)), kernel)
        of_gate = None
        if gate_design is not None:
            of_gate = gate_design.panel(X, workspace.array("gate panel", gate_design.p, len(X)), kernel)
        weight = None if self.weight is None else self.weight[index]
        exposure = None if self.exposure is None else self.exposure[index]
        groups = None
        if piece.bounds is not None:
            groups = group_block(panel if of_gate is None else of_gate, weight, piece.bounds)
        return Block(panel, self.Y[index].T, weight, exposure, groups, workspace, of_gate, kernel)

    def take(self, index: IntArray) -> Rows:
        """Return a copy of the rows at ``index``."""
        return Rows(
            self.X[index],
            self.Y[index],
            None if self.weight is None else self.weight[index],
            None if self.exposure is None else self.exposure[index],
            None if self.groups is None else Groups.of(self.groups.codes[index]),
            None if self.clusters is None else Groups.of(self.clusters.codes[index]),
        )


def sample_labels(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Sample labels (rows, or whole groups), each with probability ``share``."""
    if rows.groups is None:
        return rows.take(np.flatnonzero(rng.random(rows.n) < share))
    chosen = rng.random(len(rows.groups.bounds) - 1) < share
    return rows.take(np.flatnonzero(chosen[rows.groups.codes]))


def group_block(panel: Array, weight: Array | None, bounds: IntArray) -> GroupBlock:
    """Compute weighted group means of a panel ``(p, n)`` whose groups start at ``bounds (G + 1,)``."""
    starts, sizes = bounds[:-1], np.diff(bounds)
    if weight is None:
        return GroupBlock(starts, sizes, np.add.reduceat(panel, starts, axis=1) / sizes, np.ones(len(starts)))
    mass = np.add.reduceat(weight, starts)
    present = (mass > 0).astype(float)
    mean = np.add.reduceat(panel * weight, starts, axis=1) / np.where(mass > 0, mass, 1.0)
    return GroupBlock(starts, sizes, mean, present)
