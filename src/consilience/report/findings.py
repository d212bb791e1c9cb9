"""What a report says is computed once, from the subject: kinds, effects and predictions; sections put it into words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from consilience.fitted.effects import is_of_points
from consilience.report.kind_effects import KindEffect, find_effects
from consilience.report.kinds import RowKind, kinds_of
from consilience.report.scale import ChangeScale, NaturalStep, change_scale, natural_steps, response_name
from consilience.report.subject import Subject
from consilience.report.typical import Prediction, predict_typical
from consilience.report.wording import Words


@dataclass(frozen=True, eq=False)
class Findings:
    """A subject, with what follows from it."""

    subject: Subject

    @property
    def words(self) -> Words:
        """The words of the study."""
        return self.subject.words

    @cached_property
    def kinds(self) -> tuple[RowKind, ...]:
        """The kinds, by increasing response."""
        return kinds_of(self.subject.model, self.words)

    @cached_property
    def scale(self) -> ChangeScale:
        """The scale of effects."""
        return change_scale(self.subject.model, self.words)

    @cached_property
    def steps(self) -> list[NaturalStep]:
        """The step of each covariate."""
        return [] if is_of_points(self.subject.model) else natural_steps(self.subject.model, self.words)

    @cached_property
    def effects(self) -> list[KindEffect]:
        """Every effect within every kind."""
        return find_effects(self.subject.model, self.subject.evidence, self.kinds, self.steps)

    @cached_property
    def predictions(self) -> list[Prediction]:
        """Predictions for typical rows."""
        return predict_typical(self.subject.model, self.words, self.kinds)

    @property
    def response(self) -> str:
        """What the response is called."""
        return response_name(self.subject.model, self.words)

    def effects_of(self, step: NaturalStep, response: str = "") -> list[KindEffect]:
        """Return the effects of a step, one for each kind."""
        return [each for each in self.effects if each.step is step and each.response == response]

    @property
    def responses(self) -> list[str]:
        """Names of several responses; one empty name for a single one."""
        return list(dict.fromkeys(each.response for each in self.effects)) or [""]
