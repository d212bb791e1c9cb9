"""Check that a model meets the requirements of methods for Gaussian experts."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.errors import InvalidInputError
from consilience.model.families.base import Experts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.registry import family_of
from consilience.model.gates import gate_of
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array


@dataclass(frozen=True)
class Requirement:
    """Model requirements of a method: Gaussian experts, and further conditions.

    Parameters
    ----------
    method : str
        Name of the method, for the error message.
    one_response : bool
        Whether rows must have a single response.
    constant_gate : bool
        Whether the gate must be constant.
    instead : str
        The method to use for other models.

    Examples
    --------
    >>> needs = Requirement("FedGrEM", constant_gate=True, instead="SharedCentre")
    >>> needs.check("gaussian", "constant", q=3)
    >>> needs.check("poisson", "softmax", q=1)
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: FedGrEM needs Gaussian experts behind a constant gate; the model has poisson \
experts with 1 response(s) behind a softmax gate: use SharedCentre
    """

    method: str
    one_response: bool = False
    constant_gate: bool = False
    instead: str = "FederatedEM"

    def check(self, family: str, gate: str, q: int) -> None:
        """Raise an error that names the method, the model and the unmet requirement."""
        gaussian = issubclass(family_of(family), GaussianExperts)
        constant = not gate_of(gate).reads_covariates
        if gaussian and (q == 1 or not self.one_response) and (constant or not self.constant_gate):
            return
        needs = "Gaussian experts" + " with one response" * self.one_response
        needs += " behind a constant gate" * self.constant_gate
        has = f"{family} experts with {q} response(s) behind a {gate} gate"
        raise InvalidInputError(f"{self.method} needs {needs}; the model has {has}: use {self.instead}")


def gaussian(experts: Experts) -> GaussianExperts:
    """Return the experts typed as Gaussian, or raise an error; for code behind a :class:`Requirement`.

    Examples
    --------
    >>> import numpy as np
    >>> gaussian(GaussianExperts(np.zeros((1, 1, 2)), np.ones((1, 1, 1)))).q
    1
    """
    if not isinstance(experts, GaussianExperts):
        raise InvalidInputError(f"expected Gaussian experts, got {experts.family} experts")
    return experts


@dataclass(frozen=True, eq=False)
class Regressions:
    """Parameters of a mixture of linear regressions with one response and a constant gate.

    Parameters
    ----------
    pi : (K,) array
        Mixture weights.
    B : (K, p) array
        Coefficients.
    variances : (K,) array
    """

    pi: Array
    B: Array
    variances: Array

    @classmethod
    def of(cls, mixture: Mixture) -> Regressions:
        """Return the parameters of a mixture, or raise an error if it is not a mixture of regressions.

        Examples
        --------
        >>> from consilience.model import mixture_of_regressions
        >>> import numpy as np
        >>> mixture = mixture_of_regressions(np.ones(1), np.zeros((1, 2)), 4.0)
        >>> Regressions.of(mixture).variances
        array([4.])
        """
        experts = gaussian(mixture.experts)
        if experts.q != 1 or mixture.gate.reads_covariates:
            raise InvalidInputError(
                f"expected regressions with one response and a constant gate, got {experts.q} responses behind a "
                f"{mixture.gate.kind} gate"
            )
        return cls(mixture.gate.read()[:, 0], experts.B[:, 0], experts.variances[:, 0])
