# The commands of the house. `just` lists them; `just setup` comes first.

export PATH := justfile_directory() / ".venv/bin" + (if os_family() == "windows" { ";" } else { ":" }) + env("PATH")
export OPENBLAS_NUM_THREADS := env("OPENBLAS_NUM_THREADS", "1")
export PYTHONDONTWRITEBYTECODE := "" # each module is compiled once, not by each of the processes that tests start

run := "pytest -n 2 --dist loadgroup" # tests that share fits share a process: tests/conftest.py
every_change := '"not long and not published"'
fast := '"not slow and not long and not published"'

# list the commands
default:
    @just --list

# make .venv with everything a contributor needs
setup:
    python3 -m venv .venv
    python -m pip install --upgrade 'pip>=25.1'
    python -m pip install --editable . --group dev
    pre-commit install

# fast lane: the tests that are not slow; the full lane also runs the examples in docstrings
test *args:
    {{ run }} tests -m {{ fast }} {{ args }}

# full lane: the tests of `just check`
test-all *args:
    {{ run }} -m {{ every_change }} {{ args }}

# the methods of the literature; after a change of them, or of what they use
test-published *args:
    {{ run }} -m "published and not long" {{ args }}

# long lane: many draws, killed processes, fresh environments; before a release, and after a change that they are about
test-long *args:
    {{ run }} -m long {{ args }}

# the full lane with coverage, which nearly doubles its time
coverage *args:
    {{ run }} -m {{ every_change }} --cov --cov-report=term --cov-fail-under=95 {{ args }}

# fast lane on the lowest versions that pyproject.toml declares, in an environment of its own
test-lowest *args:
    uv venv --clear --python 3.11 .venv-lowest
    uv pip install --python .venv-lowest --resolution lowest-direct --editable '.[dask,plot]' --group test
    .venv-lowest/bin/{{ run }} -m {{ fast }} {{ args }}

# fast lane on another Python, as in `just test-python 3.13`, in an environment of its own
test-python version *args:
    uv venv --clear --python {{ version }} .venv-python
    uv pip install --python .venv-python --editable '.[dask,plot]' --group test
    .venv-python/bin/{{ run }} -m {{ fast }} {{ args }}

# what every change passes, from an empty environment
check:
    bash .ci/run

# everything: what every change passes, the methods of the literature, the ratios of speed, the long lane
check-all: check test-published (bench "--check") test-long

# plant known defects one at a time in a copy of the tree: is each caught by the tests that every change runs?
planted *args:
    python tests/planted.py {{ args }}

# style and architecture
lint:
    ruff check .
    ruff format --check .
    zizmor --quiet --offline --min-severity=medium .github
    lint-imports --no-logo

# types
types:
    mypy

# put the code in form
format:
    ruff format .
    ruff check --fix .

# build the documentation, then run its examples
docs:
    rm -rf docs/generated
    sphinx-build -W --keep-going -b html -d docs/_build/read docs docs/_build/html
    sphinx-build -W -b doctest -d docs/_build/read docs docs/_build/doctest

# ratios of speed in one table; with --check, whether one has grown since they were stored
bench *args:
    python -m benchmarks.speed.ratios {{ args }}

# run the study benchmarks/*/NAME.py
study name *args:
    python -m "$(ls benchmarks/*/{{ name }}.py | grep -v ^benchmarks/lib/ | sed 's/\.py$//' | tr / .)" {{ args }}

# add to stored results what the history of their files tells of commit, date and draws
provenance:
    python -m benchmarks.lib.provenance

# mutate a million messages, answers, questions, journals and files
fuzz number="1000000" seed="0":
    cd tests && python fuzzing.py {{ number }} {{ seed }}

# kill, stop and damage a hundred fits at random moments
faults number="100" seed="0" engine="inprocess":
    cd tests && python faults.py {{ number }} {{ seed }} {{ engine }}

# kill, delete, alter and replay at random in runs by files
mail-faults number="200" seed="0":
    cd tests && python mail_faults.py {{ number }} {{ seed }}

# pictures of two reports, or of these pages, their A4 pages, a text dump, and what axe-core finds, to look at
screenshots folder="dist/screenshots" *pages:
    python -m pip install --quiet --group look
    mkdir -p {{ folder }}
    cd {{ folder }} && npm pack --silent axe-core@4
    python tests/screenshots.py {{ folder }} {{ folder }}/axe-core-4*.tgz {{ pages }}

# what four hospitals and a coordinator type, read and wait for, from raw exports to the reports
consortium:
    cd tests && PYTHONPATH=..:. python -m paths.consortium.measure

# count what coordinator and sites do from nothing to a live run (docs/how-to/live-runs.rst); needs root and nginx
live_pages:
    cd tests && PYTHONPATH=..:. python -m paths.live.trial

# run the quick forms of all studies
studies *args:
    {{ run }} benchmarks/test_studies.py {{ args }}

# what the next release would say
changelog:
    towncrier build --draft

# build a release and check it: bytes, metadata, contents, installations, SBOM; with --dry-run of any commit
release *options:
    python tools/release.py {{ options }}

# an offline bundle with checksums and an SBOM, as in `just bundle dist/windows --platform win_amd64 --python 3.12`
bundle folder="dist/bundle" *options:
    python tools/bundle.py {{ folder }} {{ options }}

# remove what can be made again
clean:
    rm -rf dist docs/_build docs/generated .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
