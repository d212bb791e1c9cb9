"""Errors and warnings of the library.

Each error says what was got, what was expected and what to do. The tree::

    Exception
    └── ConsilienceError
        ├── InvalidInputError              also a ValueError
        ├── MessageError                   bytes that are not a message of ours
        ├── JournalError                   a journal that is damaged, in use, or of another run
        ├── EngineError                    a cluster that cannot be reached or must not be used
        ├── messages.SiteError             data of a site that cannot be read, said by a code
        └── RoundStoppedError              a round that sites did not complete; the run can be resumed

    UserWarning
    └── ConsilienceWarning
        ├── ConvergenceWarning             the fit stopped before it converged
        ├── DegenerateFitWarning           an expert emptied or sits on a boundary
        ├── StartsDisagreeWarning          the best starts end at different optima
        ├── RankDeficientWarning           the design has linearly dependent columns
        ├── SetAsideWarning                a site's model was not used, or not as a whole
        └── UntrustedWarning               so many sites disagree that the result cannot be trusted

Catch :class:`ConsilienceError` to catch every error the library raises on purpose; filter on
:class:`ConsilienceWarning` to silence, or turn into errors, all of its warnings.
"""

import inspect
import warnings

__all__ = [
    "ConsilienceError",
    "ConsilienceWarning",
    "ConvergenceWarning",
    "DegenerateFitWarning",
    "EngineError",
    "InvalidInputError",
    "JournalError",
    "MessageError",
    "RankDeficientWarning",
    "RoundStoppedError",
    "SetAsideWarning",
    "StartsDisagreeWarning",
    "UntrustedWarning",
]


class ConsilienceError(Exception):
    """Base of every error the library raises on purpose.

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
    """An argument, a table or a file is not what the call needs.

    It is also a :class:`ValueError`, so code written against scikit-learn habits catches it.

    Examples
    --------
    >>> from consilience.errors import InvalidInputError
    >>> try:
    ...     raise InvalidInputError("X has 3 columns, the model was fitted on 4; pass the same columns")
    ... except ValueError as error:
    ...     print(error)
    X has 3 columns, the model was fitted on 4; pass the same columns
    """


class MessageError(ConsilienceError):
    """Bytes that are not a message of this library, or not the answer that was asked for.

    Examples
    --------
    >>> from consilience.errors import MessageError
    >>> from consilience.messages import decode
    >>> try:
    ...     decode(b"something else")
    ... except MessageError as error:
    ...     print(error)
    not a message of this library: 14 bytes that do not start with its mark
    """


class JournalError(ConsilienceError):
    """A journal that is damaged, in use by another process, or the journal of another run."""


class EngineError(ConsilienceError):
    """A cluster that cannot be reached, has another version, or must not be used as it is."""


class RoundStoppedError(ConsilienceError):
    """Sites failed or did not answer in time, and the run stopped; with a journal it can be resumed.

    Attributes
    ----------
    sites : tuple of str
        The sites that are missing.
    record : Record
        What had been asked and answered until then.

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


class ConsilienceWarning(UserWarning):
    """Base of every warning the library gives.

    Examples
    --------
    Turn all of them into errors:

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
    """The fit stopped before it converged; its estimates are not at a maximum.

    It is not scikit-learn's class of the same name: this layer imports nothing.
    """


class DegenerateFitWarning(ConsilienceWarning):
    """An expert emptied, or a parameter sits on a boundary such as the variance floor."""


class StartsDisagreeWarning(ConsilienceWarning):
    """The best starts end at clearly different optima; the order or the optimum is in doubt."""


class RankDeficientWarning(ConsilienceWarning):
    """The design has linearly dependent columns; the minimum-norm solution was taken."""


class SetAsideWarning(ConsilienceWarning):
    """A site's model was not used, or not as a whole; the message says whose and why."""


class UntrustedWarning(ConsilienceWarning):
    """So many sites disagree that the result cannot be trusted; the message says in what way."""


def warn(message: str, category: type[ConsilienceWarning]) -> None:
    """Warn at the line of the caller's own code, however deep in the library the reason was found."""
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "consilience":
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth + 1)
