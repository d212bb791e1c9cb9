"""The vectors by which a question weighs the rows of a site.

The sums of an answer at a mixture are ``Σ_i w_i m(x_i, y_i)`` with polynomials ``m`` of low degree in the columns and
weights ``w`` that the mixture chooses: responsibilities ``τ_k``, gate weights ``π_k``, products ``π_k π_l`` (and
``τ_k τ_l`` with the observed information), the log density and its absolute value. Families whose sums are not
polynomials of the columns, such as counts and classes, add factors of their own. Whoever chooses the mixture chooses
the weights; what a combination of answers can single out depends on the span of these vectors alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit.climb import Expect
from consilience.messages.questions import LogLikelihood, Question, Sample, ScoreSums, Several
from consilience.messages.table import row_of
from consilience.model.mixture import Mixture
from consilience.model.posterior import Posterior
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Weighting:
    """A mixture by which rows are weighted, and which of its weights the answer uses.

    Parameters
    ----------
    mixture : Mixture
    sums : bool
        Whether sums over responsibilities and gate weights are in the answer; otherwise it is a likelihood only.
    gate : bool
        Whether sums over gate weights and their products are in the answer.
    curvature : bool
        Whether products of the gate weights of two experts are in the answer; their squares always are.
    information : bool
        Whether the observed information is in the answer: products of responsibilities.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(100, n_experts=2, n_features=2, random_state=0)
    >>> Weighting(data.truth, gate=True, information=False).vectors(Rows(data.X, data.y[:, None])).shape
    (9, 100)
    """

    mixture: Mixture
    sums: bool = True
    gate: bool = True
    curvature: bool = True
    information: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What the vectors are, in words for the site; those of the family itself come after them."""
        K, pairs = self.mixture.K, [f"{k + 1}, {m + 1}" for k, m in _pairs(self.mixture.K)]
        found = ["log density", "absolute log density"]
        if self.sums:
            found += [f"responsibilities of expert {k + 1}" for k in range(K)]
        if self.sums and self._reads_gate:
            found += [f"gate weights of expert {k + 1}" for k in range(K)]
            found += [f"products of gate weights of experts {k + 1}, {m + 1}" for k, m in self._gate_pairs]
        if self.information:
            found += [f"products of responsibilities of experts {pair}" for pair in pairs]
        return tuple(found)

    @property
    def _reads_gate(self) -> bool:
        return self.gate and self.mixture.gate.reads_covariates

    @property
    def _gate_pairs(self) -> list[tuple[int, int]]:
        return [(k, m) for k, m in _pairs(self.mixture.K) if self.curvature or k == m]

    def vectors(self, rows: Rows) -> Array:
        """Compute the weights of some rows, ``(c, n)``; c is the same for all rows of a site."""
        if rows.groups is not None or rows.weight is not None:
            raise InvalidInputError("there are no rules for rounds over rows with groups or weights: pass plain rows")
        parts = [self._of_block(at, block.panel.shape[0]) for block, at in self.mixture.posteriors(rows)]
        return np.concatenate(parts, axis=1) if parts else np.empty((0, 0))

    def _of_block(self, at: Posterior, p: int) -> Array:
        found = [at.log_density[None], np.abs(at.log_density)[None]]
        if self.sums:
            found.append(at.tau)
        if self.sums and self._reads_gate:
            pi = np.broadcast_to(at.pi, at.tau.shape)
            found += [pi, _products(pi, self._gate_pairs)]
        if self.information:
            found.append(_products(at.tau, _pairs(self.mixture.K)))
        return np.concatenate([*found, *self._of_family(at, p)])

    def _of_family(self, at: Posterior, p: int) -> Iterator[Array]:
        """Yield weights of the family's own, unless its sums are ``Σ τ m(x, y)`` with polynomials ``m``."""
        weights = self.mixture.experts.weights(at.at, at.tau, p)
        if not self.sums or (weights.second.shape == at.tau.shape and np.array_equal(weights.second, at.tau)):
            return
        yield np.asarray(weights.first)
        yield np.asarray(weights.second)
        if self.information:
            linear = self.mixture.experts.scores(at.at).linear  # (K, channels, n)
            weighted = (at.tau[:, None] * linear).reshape(-1, at.tau.shape[1])
            yield _products(weighted, _pairs(len(weighted)))


def _pairs(K: int) -> list[tuple[int, int]]:
    """Return all pairs of K vectors, each with itself too; none for K = 1, whose weights are 1."""
    return [(k, m) for k in range(K) for m in range(k, K)] if K > 1 else []


def _products(vectors: Array, pairs: list[tuple[int, int]]) -> Array:
    """Multiply pairs of vectors ``(K, n)``."""
    if not pairs:
        return np.empty((0, vectors.shape[1]))
    k, m = np.array(pairs).T
    return np.asarray(vectors[k] * vectors[m])


def weightings_of(question: Question) -> tuple[Weighting, ...]:
    """Return the weightings of a question; none for questions whose sums do not depend on a mixture.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.messages import Summarise
    >>> truth = soft(10, random_state=0).truth
    >>> [each.information for each in weightings_of(Several((Summarise(2, 1), Expect(truth, information=True))))]
    [True]
    """
    if isinstance(question, Several):
        return tuple(each for part in question.questions for each in weightings_of(part))
    match question.question if isinstance(question, Sample) else question:
        case Expect() as asked:
            return (Weighting(asked.mixture, information=asked.information),)
        case ScoreSums() as asked:
            return (Weighting(asked.mixture, curvature=False),)
        case LogLikelihood() as asked:
            return (Weighting(asked.mixture, sums=False),)
        case asked:
            mixture = row_of(asked).weighs(asked)
            return () if mixture is None else (Weighting(mixture),)
