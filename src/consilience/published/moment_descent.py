r"""Federated moment descent of a few anchor clients, then local steps of all clients on the regressions found.

Lili Su, Jiaming Xu and Pengkun Yang, "Global Convergence of Federated Learning for Mixed Regression", NeurIPS 2022,
arXiv:2206.07279. Phase 1 is its FedMD, phase 2 its FedX with clustering. The paper does not specify the sign of a step
or which clients have enough rows to be anchors; here all pairs of a client's rows are used instead of two rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from consilience.errors import DegenerateFitWarning, InvalidInputError, warn
from consilience.fit import Ascent, Fit, InferredFit, Specification, StartEnds, StopReason
from consilience.fit.specification import check_fittable, check_no_ridge, check_start
from consilience.messages import Answers, Dialogue, Each, Pairs, PerSite, Several, Summarise, Total
from consilience.methods import Method, Task
from consilience.methods.site_reports import survey_sites, total_summary
from consilience.methods.task import check_whole
from consilience.model import ColumnSummary, Design, Mixture, Penalty
from consilience.model.families.registry import Requirement, gaussian
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.numerics.linalg import orthonormalise
from consilience.published.client_steps import Anchors, AnchorSteps, ClusterSums, LocalSteps, Sizes

STABLE = 0.9
"""Fraction of the longest stable gradient step of the smallest client."""
PROX_RATE = 0.5
RUN_AWAY = 1e6
"""Change of the coefficients, in standard deviations of the response, above which the steps diverge."""
NO_ERRORS = "local steps give no information matrix: for standard errors, use ClusteredClients"
REQUIRED = Requirement("FedMomentDescent", one_response=True, constant_gate=True)


@dataclass(frozen=True)
class FedMomentDescent(Method):
    r"""Moment descent of anchor clients, then FedAvg or FedProx within the clusters that clients select.

    Clients are the groups of each site's rows; a site without groups is one client. Anchors start from one random
    :math:`\theta`. In each of ``descents`` steps the subspace of :math:`Y(\theta_i)`, the mean product of residual
    vectors over pairs of rows of a client, is found for every anchor by orthogonal iteration over all clients, and

    .. math:: \theta_i \leftarrow \theta_i + \tfrac12 \hat\sigma_i U_i b_i,

    where :math:`\hat\sigma_i^2` and :math:`b_i` are the leading eigenvalue and eigenvector of the anchor's own pairs in
    that subspace. The means of clusters of anchors are coarse estimates. Then, in each round, every client selects the
    regression with the smallest residuals and updates it by local steps, which are averaged with weights by rows:

    .. math:: \theta_k \leftarrow \theta_k + \sum_{i : z_i = k} \frac{n_i}{N} (\theta_i - \theta_k).

    It needs some thirty rounds for the first phase and dozens to hundreds for the second, and may fail if a cluster has
    no anchor. It is provided for comparison; :class:`ClusteredClients` is the better choice.

    Parameters
    ----------
    anchors : int or None
        Number of anchors, drawn from the clients with the most rows; ``⌈3 K log K⌉`` by default.
    descents : int
        Number of steps of the anchors.
    separation : float or None
        ``Δ``, the least distance between the coefficients of two clusters, on standardised covariates, if known.
        Anchors closer than ``Δ / 2`` are then in one cluster, and an anchor with a residual below ``0.2 Δ`` stops.
    steps : int
        Number of gradient steps of a client in each round of the second phase.
    rate : float or None
        Step length ``η``; by default ``0.9 / (1 + √(p / n))²`` with the ``n`` rows of the smallest client, and 0.5 with
        ``prox``.
    prox : bool
        Whether each client takes one proximal step (FedProx) instead of gradient steps (FedAvg).
    rounds : int
        Maximum number of rounds of the second phase.
    tol : float
        Convergence tolerance: largest change of a coefficient, in standard deviations of the response.

    References
    ----------
    L. Su, J. Xu and P. Yang, arXiv:2206.07279.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, FedMomentDescent, MixtureOfRegressions
    >>> from consilience.datasets import clients
    >>> fleet = clients([20] * 150, n_clusters=2, n_features=5, random_state=0)
    >>> sites = Federation({"all": {"X": fleet.X, "y": fleet.y, "groups": fleet.groups}})
    >>> model = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    >>> result = sites.fit(model, method=FedMomentDescent())
    >>> distances = np.linalg.norm(result.model.coef_[:, None] - fleet.theta, axis=2)
    >>> bool(distances.min(axis=0).max() < 0.05)
    True
    """

    anchors: int | None = None
    descents: int = 5
    separation: float | None = None
    steps: int = 5
    rate: float | None = None
    prox: bool = False
    rounds: int = 400
    tol: float = 1e-5

    by_client = True

    def __post_init__(self) -> None:
        for name in ("anchors", "descents", "steps", "rounds"):
            if name != "anchors" or self.anchors is not None:
                check_whole(name, getattr(self, name))
        for name in ("separation", "rate"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and np.isfinite(value)):
                raise InvalidInputError(f"{name}={value!r}: expected a positive finite number, or None")
        if not self.tol >= 0:
            raise InvalidInputError(f"tol={self.tol!r}: expected a non-negative number")

    def dialogue(self, task: Task) -> Dialogue[tuple[DescentFit]]:
        """Return one fit; a given start replaces the first phase."""
        specification = task.only("FedMomentDescent")
        REQUIRED.check(specification.family, specification.gate, task.q)
        check_no_ridge(specification, "FedMomentDescent", REQUIRED.instead)
        answers: Mapping[str, Answers] = yield Each(Several((Summarise(task.d, task.q), Sizes())))
        summaries = {site: answer.items[0] for site, answer in answers.items()}
        summary = total_summary(summaries)
        sizes: dict[str, Array] = {site: answer.items[1].n for site, answer in answers.items()}
        check_fittable(specification, summary)
        if task.start is None:
            coarse, places = yield from self._coarse(specification, summary, sizes, np.random.default_rng(task.seed))
        else:
            check_start(task.start, specification.blank(summary))
            coarse, places = task.start.in_coordinates(specification.designs(summary)[0]), {}
        end = yield from self._refined(coarse, specification.penalty(summary), summary, sizes)
        return (replace(end.fit(coarse, places), survey=survey_sites(task, summaries)),)

    def _coarse(
        self,
        specification: Specification,
        summary: ColumnSummary,
        sizes: Mapping[str, Array],
        rng: np.random.Generator,
    ) -> Dialogue[tuple[Mixture, dict[str, tuple[int, ...]]]]:
        """Run phase 1; return the means of clusters of anchors as a mixture, and the indices of the anchors."""
        blank, K = specification.blank(summary), specification.K
        places = draw_anchors(sizes, self.anchors or anchor_count(K), rng)
        descent = Descent.begun(blank.design, places, random_start(summary, blank.design, rng), K, rng)
        for number in range(self.descents):
            descent = yield from descent.looked_around(alike=number == 0)
            descent = yield from descent.stepped(self.separation)
        theta = descent.theta[descent.present]
        labels = anchor_clusters(theta, K, self.separation) if len(theta) else np.zeros(0, dtype=np.intp)
        if len(np.unique(labels)) < K:
            raise InvalidInputError(
                f"{len(theta)} anchors, clients with at least two rows, form fewer than {K} clusters: "
                "fit fewer clusters, or pass a smaller separation"
            )
        return with_coefficients(blank, np.array([theta[labels == k].mean(axis=0) for k in range(K)])), places

    def _refined(
        self, at: Mixture, penalty: Penalty, summary: ColumnSummary, sizes: Mapping[str, Array]
    ) -> Dialogue[DescentEnd]:
        """Run phase 2: local steps of all clients, averaged within clusters."""
        spread = float(np.sqrt(summary.y_covariance[0, 0]))
        rate = self.rate or (PROX_RATE if self.prox else longest_step(sizes, at.design.p))
        number = 0
        while True:
            number += 1
            sums: ClusterSums = yield Total(LocalSteps(at, self.steps, rate, self.prox))
            move = sums.moved / sums.rows.sum()
            furthest = float(np.abs(move).max()) / spread
            if not furthest < RUN_AWAY:
                raise InvalidInputError(f"the local steps diverge with rate={rate:.3g}: pass a smaller rate")
            at = average_steps(at, move, sums, penalty)
            if furthest <= self.tol or number == self.rounds:
                stop = StopReason.SETTLED if furthest <= self.tol else StopReason.ROUNDS
                return DescentEnd(at, sums, penalty, number, stop)


# ---------------------------------------------------------------- phase 2: steps of all clients


def longest_step(sizes: Mapping[str, Array], p: int) -> float:
    """Compute ``0.9 / (1 + √(p / n))²`` for the smallest client: about ``n / ‖X‖²`` for random covariates."""
    n = np.concatenate(list(sizes.values()))
    smallest = float(n[n > 0].min(initial=np.inf))
    return float(STABLE / (1 + np.sqrt(p / smallest)) ** 2)


def with_coefficients(mixture: Mixture, B: Array) -> Mixture:
    """Return the mixture with coefficients ``B (K, p)``."""
    return replace(mixture, experts=replace(gaussian(mixture.experts), B=B[:, None]))


def average_steps(mixture: Mixture, move: Array, sums: ClusterSums, penalty: Penalty) -> Mixture:
    """Add ``move (K, p)`` to the coefficients; weights and variances are those of the clusters before the move."""
    experts, gate = gaussian(mixture.experts), mixture.gate.with_shares(sums.clients / sums.clients.sum())
    moved = experts.with_scatter(experts.B + move[:, None], sums.squares[:, None, None], sums.rows, penalty.floor)
    return replace(mixture, gate=gate, experts=moved)


# ---------------------------------------------------------------- result


@dataclass(frozen=True, eq=False)
class DescentFit(InferredFit):
    """A fit by moment descent and local steps, with the result of the first phase.

    It has no standard errors. Its likelihood, weights and variances are those of the last regressions that were sent to
    clients.

    Parameters
    ----------
    inference : Inference
        The reason why there are no standard errors.
    coarse : Mixture
        The regressions after the first phase, in raw coordinates; its weights and variances are placeholders.
    anchors : mapping of str to tuple of int
        Indices of the anchors among the clients of their sites; empty if a start was given.

    Examples
    --------
    >>> from consilience import Federation, FedMomentDescent, MixtureOfRegressions
    >>> from consilience.datasets import clients
    >>> fleet = clients([20] * 150, n_clusters=2, n_features=5, random_state=0)
    >>> sites = Federation({"all": {"X": fleet.X, "y": fleet.y, "groups": fleet.groups}})
    >>> model = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    >>> fit = sites.fit(model, method=FedMomentDescent(anchors=6)).fit
    >>> len(fit.anchors["all"]), fit.coarse.coefficients.shape
    (6, (2, 5))
    """

    coarse: Mixture
    anchors: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class DescentEnd:
    """Result of the second phase: the mixture after the last average, and the sums that it was computed from."""

    mixture: Mixture
    sums: ClusterSums
    penalty: Penalty
    rounds: int
    stop: StopReason

    def fit(self, coarse: Mixture, anchors: Mapping[str, tuple[int, ...]]) -> DescentFit:
        """Return the fit, with clusters by decreasing number of clients."""
        clients = self.sums.clients
        if np.any(clients == 0):
            warn("a cluster was selected by no client: fit fewer clusters, or use more anchors", DegenerateFitWarning)
        permutation = np.argsort(-clients, kind="stable")
        ascent = Ascent.without_steps(
            self.mixture,
            clients,
            log_likelihood=self.sums.log_likelihood,
            weight=float(clients.sum()),
            penalty=self.penalty,
            passes=self.rounds,
            stop=self.stop,
        )
        fit = Fit(self.mixture.permuted(permutation).raw(), ascent, permutation, self.penalty, StartEnds())
        plain = InferredFit.without(fit, NO_ERRORS)
        return DescentFit(**vars(plain), coarse=coarse.permuted(permutation).raw(), anchors=anchors)


# ---------------------------------------------------------------- phase 1: descent of anchors


PASSES = 5
"""Number of rounds of orthogonal iteration for the subspaces of one step."""
NEAR_ENOUGH = 0.2
"""Residual, relative to the separation, at which an anchor stops."""


@dataclass(frozen=True, eq=False)
class Descent:
    """State of A anchors.

    Parameters
    ----------
    design : Design
    sites : tuple of str, (A,)
    places : tuple of int, (A,)
        Index of each anchor among the clients of its site.
    theta : (A, p) array
    basis : (A, p, f) array
        Basis of the subspace of each anchor's next step.
    going, present : (A,) array of bool
        Which anchors still move, and which still answer.
    """

    design: Design
    sites: tuple[str, ...]
    places: tuple[int, ...]
    theta: Array
    basis: Array
    going: Mask
    present: Mask

    @classmethod
    def begun(
        cls, design: Design, places: Mapping[str, tuple[int, ...]], theta: Array, K: int, rng: np.random.Generator
    ) -> Descent:
        """Start all anchors at ``theta (p,)``, with one random basis of ``min(K, p)`` directions."""
        where = [(site, place) for site, found in places.items() for place in found]
        A, f = len(where), min(K, design.p)
        basis = np.tile(orthonormalise(rng.standard_normal((design.p, f))), (A, 1, 1))
        all_of_them = np.ones(A, dtype=bool)
        sites, at = tuple(site for site, _ in where), tuple(place for _, place in where)
        return cls(design, sites, at, np.tile(theta, (A, 1)), basis, all_of_them, all_of_them)

    def looked_around(self, *, alike: bool) -> Dialogue[Descent]:
        """Update the subspaces of the anchors that move; one for all if their coefficients are ``alike``."""
        index = np.flatnonzero(self.going)
        asked = index[:1] if alike else index
        if not len(asked):
            return self
        found = yield from subspaces(self.design, self.theta[asked], self.basis[asked])
        basis = self.basis.copy()
        basis[index] = found
        return replace(self, basis=basis)

    def stepped(self, separation: float | None) -> Dialogue[Descent]:
        """Take half of each anchor's estimated step; an anchor stops if it is small relative to the separation."""
        asked = [a for a in range(len(self.sites)) if self.going[a]]
        if not asked:
            return self
        of_site = {site: [a for a in asked if self.sites[a] == site] for site in (self.sites[a] for a in asked)}
        answers: Mapping[str, AnchorSteps] = yield PerSite(
            {
                site: Anchors(self.design, tuple(self.places[a] for a in own), self.theta[own], self.basis[own])
                for site, own in of_site.items()
            }
        )
        theta, going, present = self.theta.copy(), self.going.copy(), self.present.copy()
        for site, own in of_site.items():
            if site not in answers:
                going[own], present[own] = False, False
                continue
            step = answers[site].step
            if separation is not None:
                going[own] = np.linalg.norm(step, axis=1) > NEAR_ENOUGH * separation
            theta[own] += 0.5 * going[own][:, None] * np.einsum("apf,af->ap", self.basis[own], step)
        return replace(self, theta=theta, going=going, present=present)


def subspaces(design: Design, theta: Array, basis: Array) -> Dialogue[Array]:
    """Estimate the leading subspace of ``Y(θ)`` at each of ``theta (A, p)`` by iteration from ``basis (A, p, f)``."""
    for _ in range(PASSES):
        answers: Answers = yield Total(Several(tuple(Pairs(design, at, U) for at, U in zip(theta, basis, strict=True))))
        basis = np.array([orthonormalise(sums.product) for sums in answers.items])
    return basis


def random_start(summary: ColumnSummary, design: Design, rng: np.random.Generator) -> Array:
    """Draw ``θ_0 ~ N(0, I / p)`` about the mean response, in standard deviations of the response."""
    theta = np.sqrt(summary.y_covariance[0, 0] / design.p) * rng.standard_normal(design.p)
    if design.intercept:
        theta[0] += summary.y_mean[0]
    return np.asarray(theta)


# ---------------------------------------------------------------- choice and clustering of anchors


CHOICE = 2
"""Size of the set of largest clients from which anchors are drawn, as a multiple of their number."""


def anchor_count(K: int) -> int:
    """Return the number of anchors for K clusters, ``⌈3 K log K⌉``, at least one."""
    return max(1, int(np.ceil(3 * K * np.log(K))))


def draw_anchors(sizes: Mapping[str, Array], count: int, rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """Draw ``count`` anchors uniformly from the largest clients; return their positions at their sites.

    Candidates are all clients at least as large as the ``2 count``-th largest; clients with one row are excluded.

    Parameters
    ----------
    sizes : mapping of str to (G,) array
        Numbers of rows of the clients of each site.
    count : int
    rng : numpy.random.Generator
    """
    sites = [(site, place) for site, n in sizes.items() for place in range(len(n))]
    n = np.concatenate([np.zeros(0), *sizes.values()])
    least = np.sort(n)[-CHOICE * count :][0] if len(n) else 0.0
    large = np.flatnonzero((n >= least) & (n > 1))
    chosen = np.sort(rng.choice(large, min(count, len(large)), replace=False))
    found: dict[str, tuple[int, ...]] = {}
    for site, place in (sites[i] for i in chosen):
        found[site] = (*found.get(site, ()), place)
    return found


def anchor_clusters(theta: Array, K: int, separation: float | None = None) -> IntArray:
    """Cluster the coefficients of anchors into labels ``0..K-1``, ``(A,)``.

    With a known separation ``Δ`` this is single linkage cut at ``Δ / 2``; if that does not give K clusters, and without
    ``Δ``, it is average linkage cut at K.

    Parameters
    ----------
    theta : (A, p) array
    K : int
    separation : float or None
    """
    if len(theta) == 1:
        return np.zeros(1, dtype=np.intp)
    if separation is not None:
        labels = fcluster(linkage(theta, "single"), np.nextafter(separation / 2, 0), "distance")
        if labels.max() == K:
            return _in_order(labels)
    return _in_order(fcluster(linkage(theta, "average"), K, "maxclust"))


def _in_order(labels: np.ndarray) -> IntArray:
    """Renumber labels by first occurrence."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]
