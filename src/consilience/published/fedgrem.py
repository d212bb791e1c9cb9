"""FedGrEM: gradient EM at sites, and a central step that shrinks similar sites towards a centre.

Ye Tian, Haolei Weng and Yang Feng, "Towards the theory of unsupervised federated learning: non-asymptotic analysis of
federated EM algorithms", arXiv:2310.15330. For Gaussian mixtures with covariance ``I`` and mixtures of regressions with
noise of variance 1, which the method assumes to be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate import Sharing, cap_weights, draw_towards, huber_centre, usable_sites
from consilience.errors import InvalidInputError
from consilience.fit import Expect, StopReason
from consilience.fit.specification import check_no_ridge
from consilience.messages import Dialogue, PerSite
from consilience.methods import Method, Task, local_fits
from consilience.methods.per_site.shared_fit import LastRound, SharedFit
from consilience.methods.site_reports import survey_sites
from consilience.methods.task import check_whole
from consilience.model import Experts, Mixture, Penalty, Statistics
from consilience.model.families.registry import Requirement
from consilience.numerics.arrays import Array

LEAST_SHARE = 1e-3
"""Weight of an expert below which its step length no longer increases."""
RUN_AWAY = 1e3
"""Growth of the coefficients of the centre from which the steps are said to diverge."""
REQUIRED = Requirement("FedGrEM", constant_gate=True, instead="SharedCentre")


@dataclass(frozen=True)
class FedGrEM(Method):
    """Gradient EM at sites, with a central step that is robust to outlying sites.

    It assumes noise of variance 1: scale the responses. Its results depend on the local fits from which it starts, and
    it needs hundreds of rounds. It is provided for comparison; :class:`SharedCentre` is the better choice.

    Parameters
    ----------
    step : float
        ``C_η``: steps are ``η_mk = C_η / w_mk``, with the weights ``w`` of the local fits.
    decay, strength : float
        ``κ`` and ``C_λ``: ``λ_t = κ λ_{t-1} + C_λ √(f + log M)``, ``λ_0 = 1``, with ``f`` coefficients per expert.
    rounds : int
        Maximum number of rounds after the local fits.
    tol : float
        Convergence tolerance: largest change of a coefficient in a round.

    References
    ----------
    Y. Tian, H. Weng and Y. Feng, arXiv:2310.15330: its algorithm, with the central step solved to convergence.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, FedGrEM, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> def rows():
    ...     return np.r_[rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (40, 2))]
    >>> sites = Federation({name: (rows(),) for name in "abcd"})
    >>> result = sites.fit(GaussianMixture(2, random_state=0), method=FedGrEM())
    >>> abs(result.model.means_.round(0))
    array([[0., 0.],
           [6., 6.]])
    """

    step: float = 0.95
    decay: float = 0.1
    strength: float = 2.0
    rounds: int = 1000
    tol: float = 1e-5

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds)
        if not (self.step > 0 and 0 <= self.decay < 1 and self.strength > 0 and self.tol >= 0):
            raise InvalidInputError("expected step > 0, strength > 0, 0 <= decay < 1 and tol >= 0")

    def dialogue(self, task: Task) -> Dialogue[tuple[SharedFit]]:
        """Return one fit: the centre and each site's mixture."""
        specification = task.only("FedGrEM")
        REQUIRED.check(specification.family, specification.gate, task.q)
        check_no_ridge(specification, "FedGrEM", REQUIRED.instead)
        question = task.fit_site(describe=False)
        fits = yield from local_fits(question)
        stand = {site: of_unit_noise(mixture.raw()) for site, mixture in fits.mixtures.items()}
        ending = yield from self._rounds(stand, fits.weights)
        penalty = Penalty(floor=specification.penalty(fits.summary).floor)
        return (replace(ending.fit(penalty), survey=survey_sites(task, fits.summaries)),)

    def _rounds(self, stand: dict[str, Mixture], weights: Mapping[str, float]) -> Dialogue[LastRound]:
        rows, lam = np.array([weights[site] for site in stand]), 1.0
        usual = np.median([np.abs(mixture.coefficients).max() for mixture in stand.values()])
        eta = self.step / np.maximum([_shares(mixture) for mixture in stand.values()], LEAST_SHARE)  # (M, K)
        stop, number = StopReason.ROUNDS, 0
        while True:
            number += 1
            questions = {site: Expect(mixture) for site, mixture in stand.items()}
            answers: Mapping[str, Statistics] = yield PerSite(questions)
            left = np.array([site in answers for site in stand])
            eta, rows, stand = eta[left], rows[left], {site: stand[site] for site in answers}
            before = np.array([mixture.coefficients for mixture in stand.values()])  # (M, K, f)
            theta = before + eta[:, :, None] * np.array([_mean_gradient(answer) for answer in answers.values()])
            lam = self.decay * lam + self.strength * np.sqrt(theta.shape[2] + np.log(len(stand)))
            sharing = fuse(stand, answers, theta, lam / np.sqrt(cap_weights(rows)), cap_weights(rows))
            if np.abs(sharing.centre.coefficients).max() > RUN_AWAY * max(usual, 1.0):
                raise InvalidInputError(
                    f"step={self.step!r}: the steps diverge, as FedGrEM assumes noise of variance 1; use SharedCentre"
                )
            asked, stand = stand, dict(sharing.mixtures)
            after = np.array([mixture.coefficients for mixture in stand.values()])
            if np.abs(after - before).max() <= self.tol:
                stop = StopReason.SETTLED
            if stop is StopReason.SETTLED or number == self.rounds:
                return LastRound(sharing, asked, answers, weights, {}, number, stop)


def fuse(
    stand: Mapping[str, Mixture], answers: Mapping[str, Statistics], theta: Array, threshold: Array, rows: Array
) -> Sharing:
    """Take the central step: for each expert ``min_{v, ν} Σ_m n_m (½ ‖ν_m - θ_m‖² + τ_m ‖ν_m - v‖)``.

    Parameters
    ----------
    stand, answers : mapping of str to Mixture, to Statistics
    theta : (M, K, f) array
        Coefficients after the gradient step.
    threshold : (M,) array
        ``τ_m = λ / √n_m``.
    rows : (M,) array
        ``n_m``.
    """
    try:
        finite = usable_sites(theta)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error}: FedGrEM assumes noise of variance 1") from error
    K = theta.shape[1]
    centre = np.array([huber_centre(theta[finite, k], threshold[finite], rows[finite]) for k in range(K)])
    shrunk, shrinkage = theta.copy(), np.zeros(theta.shape[:2])
    for k in range(K):
        shrunk[finite, k] = draw_towards(theta[finite, k], centre[k], threshold[finite])
        distance = np.linalg.norm(theta[finite, k] - centre[k], axis=1)
        shrinkage[finite, k] = threshold[finite] / np.maximum(distance, threshold[finite])
    mixtures = {
        site: _with_parts(mixture, shrunk[m] if finite[m] else mixture.coefficients, answers[site])
        for m, (site, mixture) in enumerate(stand.items())
    }
    first = next(iter(mixtures.values()))
    shares = np.median([_shares(mixture) for mixture in mixtures.values()], axis=0)
    middle = replace(first, gate=first.gate.with_shares(shares / shares.sum()), experts=_experts(first, centre))
    f = theta.shape[2]
    return Sharing(
        middle,
        np.full((K, f, f), np.nan),
        mixtures,
        shrinkage,
        np.repeat(finite[:, None], K, axis=1),
        np.zeros(len(theta)),
        np.full(K, np.nan),
        0.0,
    )


def of_unit_noise(mixture: Mixture) -> Mixture:
    """Return the mixture with unit covariances, which the method assumes."""
    unit = np.tile(np.eye(mixture.experts.q).ravel(), (mixture.K, 1))
    return replace(mixture, experts=mixture.experts.with_shape_values(unit))


def _shares(mixture: Mixture) -> Array:
    return mixture.gate.read()[:, 0]


def _mean_gradient(statistics: Statistics) -> Array:
    """Compute ``mean_i γ_ik (y_i - B_k x̃_i) x̃_iᵀ``, ``(K, f)``: for unit noise, the score per row."""
    K = len(statistics.experts.second)
    return statistics.experts.first.reshape(K, -1) / statistics.weight


def _with_parts(mixture: Mixture, coefficients: Array, statistics: Statistics) -> Mixture:
    """Return the mixture with other coefficients, and the weights of the last E-step."""
    gate = mixture.gate.step(statistics.gate, Penalty(0.0, 0.0), intercept=mixture.design.intercept, fraction=1.0)
    return replace(mixture, gate=gate, experts=_experts(mixture, coefficients))


def _experts(mixture: Mixture, coefficients: Array) -> Experts:
    experts = mixture.experts
    return experts.moved(coefficients.ravel() - experts.free_coefficients(), np.zeros(experts.shape_parameters))
