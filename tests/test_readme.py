import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def quick_start() -> str:
    text = README.read_text(encoding="utf-8")
    section = re.search(r"^## Quick start$(.*?)^## ", text, flags=re.MULTILINE | re.DOTALL)
    assert section, "README.md has no section 'Quick start'"
    blocks = re.findall(r"^```python\n(.*?)^```$", section[1], flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5, "expected five Python blocks: one machine, many sites, one exchange, own models, clients"
    return "".join(blocks)


@pytest.mark.slow
def test_quick_start_runs(capsys):
    names: dict[str, object] = {}
    exec(compile(quick_start(), str(README), "exec"), names)
    assert "expert" in capsys.readouterr().out.lower()
    n = len(names["data"].y)
    assert names["prediction"].shape == (n,)
    assert names["gate"].shape == (n, 4)
    assert names["result"].model.log_likelihood_ > names["model"].log_likelihood_ - 1e-3
    assert names["once"].model.log_likelihood_ > names["model"].log_likelihood_ - 3.0
    assert set(names["apart"].models) == {"north", "south", "east"}
    assert names["north"].shape == (5,)
