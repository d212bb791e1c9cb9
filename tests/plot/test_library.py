import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

from consilience.plot.drawing import prepare_axes, pyplot


def test_the_import_error_names_the_command_that_installs_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"consilience.plot needs Matplotlib: pip install 'consilience\[plot\]'"):
        pyplot()


@pytest.mark.slow  # a new process imports the library
def test_importing_the_pictures_does_not_import_matplotlib():
    code = "import sys, consilience; consilience.plot.gate; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_axes_are_new_unless_they_are_given():
    _, ax = plt.subplots()
    assert prepare_axes(ax) is ax
    assert prepare_axes(None).figure is not ax.figure
    assert not ax.spines["top"].get_visible()
