"""Whatever a site refuses under CSL-115, the message says what to do.

The messages are read from the source: those of each ``RefusedError`` and of each ``CommandError`` of this kind, with
the texts that functions return to them. A message that comes from elsewhere must be listed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import consilience

SOURCE = Path(consilience.__file__).parent
TO_DO = re.compile(
    r"(?:^|[.:;,] |, and |, or |\bor )(?:To do: )?"
    r"(?:add|answer|ask|complete|correct|decide|fit again|install|leave|let|look|merge|move|restore|run|send|set|tell|"
    r"use|wait)\b",
    re.IGNORECASE,
)
"""An instruction: a verb in the imperative that begins a clause."""
RETURNED = {
    "kit/approvals.py": ("refused_approver",),
    "kit/differencing.py": ("_refusal",),
    "kit/policy/contract.py": ("few_rows",),
    "kit/site_fit.py": ("few_filled",),
    "model/contributions.py": ("refusal",),
}
"""Functions whose texts become messages of CSL-115."""
NAMED = {
    "kit/differencing.py": ("TOGETHER",),
    "kit/policy/refit.py": ("MORE_ROWS",),
    "kit/site_fit.py": ("NO_KEY",),
    "cli/options.py": ("WITHOUT_A_PERSON",),
}
"""Constants that become messages, or their ends."""
FORWARDED = {"decision.said", "found.refusal", "reason", "refusal", "release.refusal", "said", "str(error)", "NO_KEY"}
"""Expressions that pass on a text of the two tables above, or of REMEDIES."""


def texts_in(node: ast.AST, constants: dict[str, str]) -> str:
    """Return the text of an expression, with words in place of what is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(texts_in(each, constants) for each in node.values)
    if isinstance(node, ast.FormattedValue):
        return constants.get(ast.unparse(node.value), "X")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
        return texts_in(node.func.value, constants)
    if isinstance(node, ast.BinOp):
        return texts_in(node.left, constants) + texts_in(node.right, constants)
    return constants.get(ast.unparse(node), "")


def constants_of(tree: ast.Module) -> dict[str, str]:
    """Return the texts of the constants of a module, and of those of the commands' options that it imports."""
    options = SOURCE / "cli" / "options.py"
    found: dict[str, str] = {}
    if any(isinstance(node, ast.ImportFrom) and node.module == "consilience.cli.options" for node in tree.body):
        found |= constants_of(ast.parse(options.read_text(encoding="utf-8")))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = texts_in(node.value, found)
    return found


def raised(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the messages of refusals that a module raises."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "RefusedError":
                yield node.args[0]
            if node.func.id == "CommandError" and ast.unparse(node.args[0]) == "CommandFault.REFUSED":
                yield node.args[1]


def returned(tree: ast.Module, names: tuple[str, ...]) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and each.value is not None and texts_in(each.value, {}):
                    yield each.value


def is_returned(node: ast.expr) -> bool:
    """Whether a message is that of a function of the table, whose texts are read there."""
    known = {function for functions in RETURNED.values() for function in functions}
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known


def messages() -> Iterator[tuple[str, str]]:
    """Yield the text of each message, after its place."""
    for path in sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "kit" / "site_rounds.py"}):
        name, tree = path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        constants = constants_of(tree)
        for node in [*raised(tree), *returned(tree, RETURNED.get(name, ()))]:
            if ast.unparse(node) not in FORWARDED and not is_returned(node):
                yield f"{name}:{node.lineno}", texts_in(node, constants)
        for constant in NAMED.get(name, ()):
            yield f"{name}:{constant}", constants[constant]


FOUND = dict(messages())


def test_the_messages_are_found() -> None:
    assert len(FOUND) > 30
    for file, names in (*RETURNED.items(), *NAMED.items()):
        assert [place for place in FOUND if place.startswith(file)], (file, names)
    assert any("max_memory" in text for text in FOUND.values())


@pytest.mark.parametrize("place", FOUND)
def test_a_refusal_says_what_to_do(place: str) -> None:
    assert TO_DO.search(FOUND[place]), FOUND[place]


def test_each_remedy_of_a_rule_is_an_instruction() -> None:
    from consilience.kit.policy.refit import REMEDIES

    assert [rule for rule, said in REMEDIES.items() if not TO_DO.search(f"To do: {said}")] == []


def test_a_message_without_an_instruction_is_told_from_one_with_it() -> None:
    assert not TO_DO.search("too many questions over these rows were refused: nothing is answered over them any more")
    assert not TO_DO.search("the question takes more than max_operations")
    assert TO_DO.search("the policy was changed after the fit: fit again")
