"""What a method says that it asks, held against what it asks in runs of studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience.engines.inprocess import InProcess
from consilience.kit.combination import run_study, sites_of
from consilience.kit.policy.contract import parts_of
from consilience.kit.study import Study
from consilience.kit.study_model import METHODS, method_of, task_of
from consilience.messages import Each, PerSite, Several, Total
from consilience.methods import Method, Task
from mail_office import TABLES, start, study_with, with_noise

pytestmark = pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
FEW = {name: TABLES[name] for name in ("ash", "birch", "cedar")}


class Watched(Method):
    """A method whose requests are kept."""

    def __init__(self, method: Method) -> None:
        self.method, self.rounds = method, list[set[str]]()

    def most_rounds(self, task: Task) -> int:
        """The limit of the method."""
        return self.method.most_rounds(task)

    def dialogue(self, task: Task) -> Any:
        """The dialogue of the method."""
        talk, answer = self.method.dialogue(task), None
        while True:
            try:
                request = talk.send(answer)
            except StopIteration as end:
                return end.value
            self.rounds.append(set(kinds_in(request)))
            answer = yield request


def kinds_in(request: Total | Each | PerSite) -> Iterator[str]:
    """Names of the questions of a request; a sample comes before the question in it."""
    asked = request.questions.values() if isinstance(request, PerSite) else (request.question,)
    for question in asked:
        yield from (type(part).__name__ for part in parts_of(question) if not isinstance(part, Several))


def unasked(study: Study, tables: Mapping[str, pa.Table] = FEW, **known: Any) -> set[str]:
    """Run a study whose method must ask nothing that it does not state; what it states and has not asked."""
    watched = Watched(method_of(study))
    run_study(study, InProcess().over(sites_of(study, tables)), watched, **known)
    stated = {each.question.__name__: each.most for each in watched.method.question_kinds(task_of(study, **known))}
    asked = Counter(name for kinds in watched.rounds for name in kinds)
    said = f"{watched.method!r}: {dict(asked)}"
    assert set(asked) <= set(stated), said
    assert all(n <= (stated[name] or n) for name, n in asked.items()), said
    return set(stated) - set(asked)


def of_clients(method: str) -> tuple[Study, dict[str, pa.Table]]:
    """A study of clinics within hospitals, and its tables."""
    text = study_with(f'name = "ClusteredClients"{method}', 'clients = "clinic"').to_text()
    text = text.replace('gate = "softmax"', 'gate = "constant"').replace("rows_per_expert = 10", "rows_per_expert = 1")
    lines = [line for line in text.splitlines() if not line.startswith("gate_columns")]
    rng = np.random.default_rng(0)
    tables = {
        name: table.append_column("clinic", pa.array(np.sort(rng.integers(0, 30, table.num_rows)).astype(str)))
        for name, table in FEW.items()
    }
    return Study.from_text("\n".join(lines)), tables


SETTINGS = (
    'name = "OneShot", refine = 1',
    'name = "OneShot", refine = 2, per_site = "gate"',
    'name = "FederatedEM"',
    'name = "FederatedEM", totals_only = true',
    'name = "SharedCentre", rounds = 3',
    'name = "SharedCentre", rounds = 3, participation = 0.6',
)


@pytest.mark.slow
def test_a_method_asks_all_that_it_states_and_nothing_else() -> None:
    found = {text: unasked(study_with(text)) for text in SETTINGS}
    found["from a start"] = unasked(study_with('name = "FederatedEM"'), start=start())
    found["clients"] = unasked(*of_clients(""))
    found["a part of the clients"] = unasked(*of_clients(", participation = 0.8"))
    found["noise"] = unasked(with_noise(), start=start())
    found["private start"] = unasked(with_noise('epsilon = 8.0, start = "private"'), TABLES)
    assert not {text: kinds for text, kinds in found.items() if kinds}


def test_every_method_that_a_study_can_name_states_what_it_asks() -> None:
    task = task_of(study_with())
    assert all(method().question_kinds(task) for method in METHODS.values())
