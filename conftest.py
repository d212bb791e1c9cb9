"""What pytest leaves out: modules that need a package which is not installed."""

from importlib.util import find_spec

KERNELS = "src/consilience/model/kernels"
NEEDS = {"numba": [f"{KERNELS}/{name}.py" for name in ("compiled", "compiled_residuals", "tiles")], "selenium": ["tests/screenshots.py"]}
collect_ignore = [file for package, files in NEEDS.items() if not find_spec(package) for file in files]
