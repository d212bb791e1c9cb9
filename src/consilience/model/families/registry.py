"""Registry of the families of experts: a new family is one module and one line here, or an entry point of a package."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model.design import Design
from consilience.model.families import covariance as cov
from consilience.model.families.base import Experts
from consilience.model.families.binomial import BinomialExperts
from consilience.model.families.categorical import CategoricalExperts
from consilience.model.families.gamma import GammaExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.hurdle_poisson import HurdlePoissonExperts
from consilience.model.families.negative_binomial import NegativeBinomialExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.student import StudentExperts
from consilience.model.families.zero_inflated_poisson import ZeroInflatedPoissonExperts
from consilience.model.gates import ConstantGate, Gate, SoftmaxGate, gate_of
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array

GROUP = "consilience.families"
"""Group of entry points by which an installed package registers a family: its name, and its class."""
ELSEWHERE = f"; a family of another package must be installed on this side and registered under {GROUP}"
"""What is said of a family that is not known."""
OWN: tuple[type[Experts], ...] = (
    GaussianExperts,
    CategoricalExperts,
    PoissonExperts,
    GammaExperts,
    BinomialExperts,
    StudentExperts,
    NegativeBinomialExperts,
    ZeroInflatedPoissonExperts,
    HurdlePoissonExperts,
)
"""Families of the library in the order of their codes in messages: add new ones at the end."""


class Families(MutableMapping[str, type[Experts]]):
    """Families by name: those of the library first, then those that installed packages register.

    A registered family is imported when its name is first looked up, and cannot take the name of another one.
    """

    def __init__(self) -> None:
        self._known = {each.family: each for each in OWN}

    def __getitem__(self, name: str) -> type[Experts]:
        if name not in self._known:
            for registered in entry_points(group=GROUP, name=name):
                self._known[name] = _imported(registered)
                break
        return self._known[name]

    def __setitem__(self, name: str, family: type[Experts]) -> None:
        self._known[name] = family

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        known = tuple(self._known)
        yield from known
        yield from sorted({each.name for each in entry_points(group=GROUP)}.difference(known))

    def __len__(self) -> int:
        return len(tuple(iter(self)))


FAMILIES = Families()
"""The families by name."""


def _imported(registered: EntryPoint) -> type[Experts]:
    """Return the class of an entry point; raise an error if it is not a family of that name."""
    said = f"family {registered.name!r} is registered as {registered.value!r} under {GROUP}"
    try:
        family = registered.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(f"{said}, which cannot be imported ({error}): repair or remove its package") from error
    if not (isinstance(family, type) and issubclass(family, Experts) and family.family == registered.name):
        raise InvalidInputError(f"{said}, which is not a class of experts whose family is {registered.name!r}")
    return family


def family_of(name: str) -> type[Experts]:
    """Return the family of this name, or raise an error that lists the names."""
    if name not in FAMILIES:
        raise InvalidInputError(f"family {name!r}: {advise_family(name, tuple(FAMILIES))}")
    return FAMILIES[name]


ALIASES = MappingProxyType(
    {
        "normal": "gaussian",
        "linear": "gaussian",
        "t": "student",
        "student_t": "student",
        "bernoulli": "binomial",
        "logistic": "binomial",
        "logit": "binomial",
        "count": "poisson",
        "nb": "negative_binomial",
        "negbin": "negative_binomial",
        "zip": "zero_inflated_poisson",
        "zeroinfl": "zero_inflated_poisson",
        "multinomial": "categorical",
        "softmax": "categorical",
    }
)
"""Names that other programs give to families."""


def advise_family(name: object, known: Sequence[str]) -> str:
    """Say which family an unknown name may mean, and list those that are known."""
    word = str(name).lower().replace("-", "_").replace(" ", "_")
    meant = ALIASES.get(word) or next(iter(get_close_matches(word, [*FAMILIES, *ALIASES], 1)), None)
    meant = ALIASES.get(str(meant), meant)
    listed = f"expected one of {', '.join(known)}{ELSEWHERE}"
    if meant in known:
        return f"did you mean {meant!r}? {listed[0].upper()}{listed[1:]}"
    return f"for classes, use MixtureOfExpertsClassifier; {listed}" if meant == "categorical" else listed


def regression_families() -> tuple[str, ...]:
    """Return the names of the families whose responses are numbers, not classes."""
    return tuple(name for name, family in FAMILIES.items() if not family.classes)


# ---------------------------------------------------------------- regressions


def linear_experts(B: Array, variances: Array | float, structure: str = "full") -> GaussianExperts:
    """Build linear regressions with one response.

    Parameters
    ----------
    B : (K, p) array
        Coefficients.
    variances : (K,) array or float
    structure : str
        Covariance structure; ``"tied"`` uses the first variance.
    """
    kind = cov.as_structure(structure)
    matrices = np.broadcast_to(np.asarray(variances, dtype=np.float64), (len(B),))[:, None, None].copy()
    return GaussianExperts(B[:, None], cov.store_covariances(matrices, kind), kind)


def mixture_of_regressions(
    pi: Array, B: Array, variances: Array | float, design: Design | None = None, structure: str = "full"
) -> Mixture:
    """Build a mixture of linear regressions with one response and a constant gate; raw covariates by default.

    Parameters
    ----------
    pi : (K,) array
        Mixture weights.
    B, variances, structure
        As in :func:`linear_experts`.
    design : Design, optional

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import mixture_of_regressions
    >>> mixture_of_regressions(np.array([0.5, 0.5]), np.array([[0.0, 1.0], [0.0, -1.0]]), 1.0).K
    2
    """
    return _mixture(ConstantGate(pi), B, variances, design, structure)


def mixture_of_experts(
    alpha: Array, B: Array, variances: Array | float, design: Design | None = None, structure: str = "full"
) -> Mixture:
    """Build a mixture of linear regressions with one response and a softmax gate.

    Parameters
    ----------
    alpha : (K, p) array
        Coefficients of the gate.
    B, variances, design, structure
        As in :func:`mixture_of_regressions`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import mixture_of_experts
    >>> mixture_of_experts(np.zeros((2, 3)), np.zeros((2, 3)), 1.0).design.d
    2
    """
    return _mixture(SoftmaxGate(alpha), B, variances, design, structure)


def _mixture(gate: Gate, B: Array, variances: Array | float, design: Design | None, structure: str) -> Mixture:
    at = Design.raw(B.shape[1] - 1) if design is None else design
    return Mixture(at, gate, linear_experts(B, variances, structure))


def standard_regression(design: Design) -> Mixture:
    """Return an expert with mean 0 and variance 1: its sums are ``Σ w``, ``Σ w y²``, ``Σ w y x̃``, ``Σ w x̃ x̃ᵀ``."""
    return mixture_of_regressions(np.ones(1), np.zeros((1, design.p)), 1.0, design)


# ---------------------------------------------------------------- requirement


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
    """Return the experts typed as Gaussian, or raise an error; for code behind a :class:`Requirement`."""
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
        """Return the parameters of a mixture, or raise an error if it is not a mixture of regressions."""
        experts = gaussian(mixture.experts)
        if experts.q != 1 or mixture.gate.reads_covariates:
            raise InvalidInputError(
                f"expected regressions with one response and a constant gate, got {experts.q} responses behind a "
                f"{mixture.gate.kind} gate"
            )
        return cls(mixture.gate.read()[:, 0], experts.B[:, 0], experts.variances[:, 0])
