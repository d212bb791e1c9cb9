"""Engine of files: the answers that sites sent as files, each to the one question of their study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from consilience.errors import InvalidInputError
from consilience.files.canonical import content_hash
from consilience.files.site_file import SiteFile
from consilience.messages.failures import Failure, FailureCode
from consilience.messages.questions import FitSite
from consilience.messages.table import decode, encode
from consilience.runs.engine import Reply, digest


class SiteFiles:
    """Engine whose sites have answered before, by a file each.

    Every site answers a :class:`~consilience.messages.FitSite` with the fit in its file, and no other question: there
    is nobody to ask. The coordinator checks these answers as those of any engine.

    Parameters
    ----------
    files : mapping of str to SiteFile
        File of each site, in the order of the sites.

    Examples
    --------
    >>> from consilience.messages import LocalFit
    >>> from consilience.model.summary import ColumnSummary
    >>> file = SiteFile("sha256:" + 64 * "0", "north", ("(intercept)",), LocalFit(ColumnSummary.unit(0, 1), None, None))
    >>> SiteFiles({"north": file}).sites
    ('north',)
    """

    def __init__(self, files: Mapping[str, SiteFile]) -> None:
        if not files:
            raise InvalidInputError("expected the file of at least one site")
        self._answers = {name: encode(file.fit, fingerprint_of(file)) for name, file in files.items()}

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the order of summation."""
        return tuple(self._answers)

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield the stored answers; a failure for a question that files cannot answer."""
        answers = self._answers if isinstance(decode(question), FitSite) and not total else {}
        refused = encode(Failure(FailureCode.NO_ANSWER_TO_KIND))
        replies = [(name, answers.get(name, refused)) for name in sites]
        yield [Reply(number, (name,), message, (digest(message),), 0.0) for name, message in replies]

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


def fingerprint_of(file: SiteFile) -> int:
    """Return the fingerprint of a file's rows: that of its fit, so that one fit under two names is seen.

    Examples
    --------
    >>> from consilience.messages import LocalFit
    >>> from consilience.model.summary import ColumnSummary
    >>> nothing = LocalFit(ColumnSummary.unit(0, 1), None, None)
    >>> files = [SiteFile("sha256:" + 64 * "0", name, ("(intercept)",), nothing) for name in ("north", "south")]
    >>> fingerprint_of(files[0]) == fingerprint_of(files[1])
    True
    """
    own = {key: value for key, value in file.content.items() if key not in ("site", "evidence")}
    return int(content_hash(own).removeprefix("sha256:")[:15], 16)
