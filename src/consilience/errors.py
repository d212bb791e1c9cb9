"""Errors and warnings of the library.

Each error message says what was received, what was expected and what to do. The hierarchy::

    Exception
    └── ConsilienceError
        ├── InvalidInputError              also a ValueError
        │   ├── TooFewRowsError            a mixture with more parameters than observed responses
        │   └── UnknownParameterError      also a TypeError
        ├── MessageError                   bytes that are not a valid message, or not the expected answer
        ├── JournalError                   a journal that is damaged, in use, or of another run
        ├── EngineError                    a cluster that cannot be reached or is not allowed
        │   └── AwaitedError               a run by files that waits for the answers of sites
        ├── StoreError                     a store of letters that cannot be used now
        ├── RefusedError                   a question that the rules of a site do not allow
        ├── messages.SiteError             data of a site that cannot be read, reported as a code
        └── RoundStoppedError              a round that some sites did not answer; the run can be resumed

    UserWarning
    └── ConsilienceWarning
        ├── ConvergenceWarning             the fit stopped before it converged
        ├── DegenerateFitWarning           an expert is empty, or a parameter is on a boundary
        ├── OneExpertWarning               one expert describes the rows as well as several
        ├── StartsDisagreeWarning          the best starts converged to different optima
        ├── RankDeficientWarning           the design has linearly dependent columns
        ├── SetAsideWarning                a site's model was excluded, wholly or in part
        ├── SuspectDataWarning             columns of a site, or its fit, suggest that its data are wrong
        ├── InfluentialSiteWarning         a coefficient depends on one site
        ├── LargeMessagesWarning           the answers of sites are large
        └── UntrustedWarning               too many sites disagree for the result to be reliable

Catch :class:`ConsilienceError` to catch every error the library raises on purpose; filter on
:class:`ConsilienceWarning` to silence, or turn into errors, all of its warnings.
"""

import inspect
import warnings

__all__ = [
    "AwaitedError",
    "ConsilienceError",
    "ConsilienceWarning",
    "ConvergenceWarning",
    "DegenerateFitWarning",
    "EngineError",
    "InfluentialSiteWarning",
    "InvalidInputError",
    "JournalError",
    "LargeMessagesWarning",
    "MessageError",
    "OneExpertWarning",
    "RankDeficientWarning",
    "RefusedError",
    "RoundStoppedError",
    "SetAsideWarning",
    "StartsDisagreeWarning",
    "StoreError",
    "SuspectDataWarning",
    "TooFewRowsError",
    "UnknownParameterError",
    "UntrustedWarning",
]


class ConsilienceError(Exception):
    """Base class of all errors raised on purpose by the library.

    Examples
    --------
    >>> from consilience.errors import ConsilienceError, InvalidInputError
    >>> try:
    ...     raise InvalidInputError("n_experts: got 0, expected an integer >= 1")
    ... except ConsilienceError as error:
    ...     print(error)
    n_experts: got 0, expected an integer >= 1
    """


class InvalidInputError(ConsilienceError, ValueError):
    """Raised for an argument, table or file that is not valid.

    It is also a :class:`ValueError`, as scikit-learn users expect.

    Examples
    --------
    >>> from consilience.errors import InvalidInputError
    >>> try:
    ...     raise InvalidInputError("X has 3 columns, the model was fitted on 4; pass the same columns")
    ... except ValueError as error:
    ...     print(error)
    X has 3 columns, the model was fitted on 4; pass the same columns
    """


class TooFewRowsError(InvalidInputError):
    """Raised for a mixture with more parameters than observed responses, before any work.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture
    >>> try:
    ...     GaussianMixture(30).fit(np.arange(40.0)[:, None])
    ... except TooFewRowsError as error:
    ...     print(error)
    30 experts have 89 parameters, more than the 40 observed responses: fit at most 7 experts
    """


class UnknownParameterError(InvalidInputError, TypeError):
    """Raised for a parameter that an estimator does not have.

    It is also a :class:`TypeError`, which Python raises for an unknown keyword.

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.errors import UnknownParameterError
    >>> try:
    ...     MixtureOfExpertsRegressor(n_components=3)
    ... except UnknownParameterError as error:
    ...     print(error)
    MixtureOfExpertsRegressor has no parameter 'n_components': its number of experts is n_experts
    """


class MessageError(ConsilienceError):
    """Raised for bytes that are not a valid message, or not the expected answer.

    Examples
    --------
    >>> from consilience.errors import MessageError
    >>> from consilience.messages import decode
    >>> try:
    ...     decode(b"something else")
    ... except MessageError as error:
    ...     print(error)
    not a message of this library: 14 bytes without its mark and header
    """


class JournalError(ConsilienceError):
    """Raised for a journal that is damaged, in use by another process, or of another run."""


class EngineError(ConsilienceError):
    """Raised for a cluster that cannot be reached, runs another version, or is not allowed."""


class AwaitedError(EngineError):
    """Raised if a run by files waits for answers that are not there yet; the same call goes on later.

    Attributes
    ----------
    sites : tuple of str
        The sites that have not answered.
    """

    def __init__(self, message: str, sites: tuple[str, ...]) -> None:
        super().__init__(message)
        self.sites = sites


class StoreError(ConsilienceError):
    """Raised for a store of letters that cannot be reached, or that refuses; the same call may succeed later."""


class RoundStoppedError(ConsilienceError):
    """Raised if sites failed or did not answer in time; with a journal the run can be resumed.

    Attributes
    ----------
    sites : tuple of str
        The sites that did not answer.
    record : Record
        The questions asked and answers received so far.

    Examples
    --------
    >>> from consilience.errors import RoundStoppedError
    >>> RoundStoppedError("round 3 stopped: north did not answer in 60 s", ("north",), None).sites
    ('north',)
    """

    def __init__(self, message: str, sites: tuple[str, ...], record: object) -> None:
        super().__init__(message)
        self.sites = sites
        self.record = record


class RefusedError(ConsilienceError):
    """Raised if the rules of a site do not allow what was asked; the message says which, without counts or values."""


class ConsilienceWarning(UserWarning):
    """Base class of all warnings of the library.

    Examples
    --------
    Turn all warnings into errors:

    >>> import warnings
    >>> from consilience.errors import ConsilienceWarning, ConvergenceWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ConsilienceWarning)
    ...     try:
    ...         warnings.warn("stopped after 3 iterations; raise max_iter", ConvergenceWarning)
    ...     except ConsilienceWarning as warning:
    ...         print(warning)
    stopped after 3 iterations; raise max_iter
    """


class ConvergenceWarning(ConsilienceWarning):
    """The fit stopped before convergence; its estimates are not at a maximum.

    This is not scikit-learn's class of the same name: this module imports nothing.
    """


class DegenerateFitWarning(ConsilienceWarning):
    """An expert is empty, or a parameter is on a boundary such as the variance floor."""


class OneExpertWarning(ConsilienceWarning):
    """One expert describes the rows as well as several, by BIC: the data do not show that there are several."""


class StartsDisagreeWarning(ConsilienceWarning):
    """The best starts converged to clearly different optima; the number of experts or the optimum is in doubt."""


class LargeMessagesWarning(ConsilienceWarning):
    """The answers of sites are large; the message has the size, and what takes less."""


class RankDeficientWarning(ConsilienceWarning):
    """The design has linearly dependent columns; the minimum-norm solution was used."""


class SetAsideWarning(ConsilienceWarning):
    """A site's model was excluded, wholly or in part; the message names the site and the reason."""


class SuspectDataWarning(ConsilienceWarning):
    """The data of a site look wrong, for example a column in other units; the message names site and column."""


class InfluentialSiteWarning(ConsilienceWarning):
    """A coefficient would change by more than two standard errors without one site; the message names both."""


class UntrustedWarning(ConsilienceWarning):
    """Too many sites disagree for the result to be reliable; the message says in what way."""


def warn(message: str, category: type[ConsilienceWarning]) -> None:
    """Issue a warning that points to the caller's own code, outside the library."""
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "consilience":
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth + 1)
