"""What pytest leaves out: modules that need a package that is not installed, and a script that writes on import."""

from importlib.util import find_spec

KERNELS = [f"src/consilience/model/kernels/{name}.py" for name in ("compiled", "compiled_residuals", "tiles")]
NEEDS = {"numba": KERNELS, "selenium": ["tests/screenshots.py"]}
SCRIPT = "tests/agreement/statsmodels/make_values.py"
collect_ignore = [SCRIPT, *(file for package, files in NEEDS.items() if not find_spec(package) for file in files)]
