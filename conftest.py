"""What pytest leaves out: modules that need a package which is not installed."""

from importlib.util import find_spec

KERNELS = [f"src/consilience/model/kernels/{name}.py" for name in ("compiled", "compiled_residuals", "tiles")]
NEEDS = {"numba": KERNELS, "selenium": ["tests/screenshots.py"]}
collect_ignore = [file for package, files in NEEDS.items() if not find_spec(package) for file in files]
