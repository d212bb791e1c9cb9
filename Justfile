# The commands of the house. `just` lists them; `just setup` comes first.

export PATH := justfile_directory() / ".venv/bin" + ":" + env("PATH")
export OPENBLAS_NUM_THREADS := env("OPENBLAS_NUM_THREADS", "1")

# list the commands
default:
    @just --list

# make .venv with everything a contributor needs
setup:
    python3 -m venv .venv
    python -m pip install --upgrade 'pip>=25.1'
    python -m pip install --editable . --group dev
    pre-commit install

# fast lane: the tests that are not slow
test *args:
    pytest -m "not slow" -n 2 --dist worksteal {{ args }}

# full lane: every test, with the coverage of the fast lane
test-all *args:
    pytest -m "not slow" -n 2 --dist worksteal --cov {{ args }}
    pytest -m slow -n 2 --dist worksteal {{ args }}

# everything, from an empty environment
check:
    bash .ci/run

# style and architecture
lint:
    ruff check .
    ruff format --check .
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
    sphinx-build -W --keep-going -b html docs docs/_build/html
    sphinx-build -W -b doctest docs docs/_build/doctest

# run the study benchmarks/*/NAME.py
bench name *args:
    python -m "$(ls benchmarks/*/{{ name }}.py | grep -v ^benchmarks/lib/ | sed 's/\.py$//' | tr / .)" {{ args }}

# mutate a million messages, answers, questions and journals
fuzz number="1000000" seed="0":
    cd tests && python fuzzing.py {{ number }} {{ seed }}

# kill, stop and damage a hundred fits at random moments
faults number="100" seed="0" engine="inprocess":
    cd tests && python faults.py {{ number }} {{ seed }} {{ engine }}

# run the quick forms of all studies
studies *args:
    pytest benchmarks/test_studies.py -n 2 --dist worksteal {{ args }}

# what the next release would say
changelog:
    towncrier build --draft

# the wheel, into dist/
build:
    python -m pip wheel --no-deps --wheel-dir dist .

# remove what can be made again
clean:
    rm -rf dist docs/_build docs/generated .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
