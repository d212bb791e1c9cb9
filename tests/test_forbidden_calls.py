"""The library runs no code from data, and what a site runs needs no POSIX system."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "consilience"
SITE_PATH = ("site", "files", "columns", "studies", "cli")

CODE_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
CODE_NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
CODE_ATTRIBUTES = {
    "os.system",
    "os.popen",
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
}
CODE_PREFIXES = ("os.exec", "os.spawn", "os.posix_spawn")

POSIX_MODULES = {"fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "posix", "syslog", "crypt", "spwd"}
POSIX_OS = {
    *("fork", "forkpty", "wait", "wait3", "wait4", "waitid", "killpg", "nice", "sync", "uname", "chroot", "chown"),
    *("fchown", "lchown", "fchmod", "fchdir", "mkfifo", "mknod", "getloadavg", "sysconf", "statvfs"),
    *("getuid", "geteuid", "getgid", "getegid", "getgroups", "getpgid", "getpgrp", "getsid", "setsid", "setuid"),
    *("setgid", "setpgid", "getpriority", "setpriority", "openpty", "lockf", "pread", "pwrite", "sendfile", "readv"),
    *("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_SYNC", "O_NONBLOCK", "sched_getaffinity", "confstr", "fpathconf"),
    *("getxattr", "setxattr", "listxattr", "memfd_create", "register_at_fork", "initgroups", "ctermid"),
}
POSIX_SIGNAL = {
    *("SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP", "SIGCONT", "SIGPIPE"),
    *("alarm", "setitimer", "pause", "sigwait", "pthread_kill", "pthread_sigmask"),
}
POSIX_ATTRIBUTES = {*(f"os.{name}" for name in POSIX_OS), *(f"signal.{name}" for name in POSIX_SIGNAL)}
POSIX_METHODS = {"owner", "is_mount"}  # of pathlib.Path
POSIX_PLACES = ("/proc/", "/dev/", "/etc/", "/sys/", "/tmp/")


def dotted(node: ast.AST) -> str:
    """Return a chain of attributes as text: ``os.path.join``."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement imports, and those of ``import_module`` with a constant."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and dotted(node.func).endswith("import_module"):
        yield from (str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant))


def code_from_data(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that can run code from data."""
    for node in ast.walk(tree):
        for name in imported(node):
            if name.split(".")[0] in CODE_MODULES or name in CODE_ATTRIBUTES or name.startswith(CODE_PREFIXES):
                yield node.lineno, name
        if isinstance(node, ast.Name) and node.id in CODE_NAMES:
            yield node.lineno, node.id
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if name in CODE_ATTRIBUTES or name.startswith(CODE_PREFIXES) or name.split(".")[0] in CODE_MODULES:
                yield node.lineno, name
        if isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle") and not is_false(node.value):
            yield node.value.lineno, f"{node.arg}="


def is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def needs_posix(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that only POSIX systems have."""
    for node in ast.walk(tree):
        for name in imported(node):
            if name.split(".")[0] in POSIX_MODULES or name in POSIX_ATTRIBUTES:
                yield node.lineno, name
        if isinstance(node, ast.Attribute) and dotted(node) in POSIX_ATTRIBUTES:
            yield node.lineno, dotted(node)
        if isinstance(node, ast.Call) and not [*node.args, *node.keywords] and is_posix_method(node.func):
            yield node.lineno, f".{node.func.attr}()"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(POSIX_PLACES):
            yield node.lineno, node.value


def is_posix_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in POSIX_METHODS


def found_in(folders: tuple[str, ...], rule) -> list[str]:
    """Return place and name of all that a rule finds in the source."""
    files = [path for folder in folders for path in sorted((SOURCE / folder).rglob("*.py"))]
    assert files
    return [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in files
        for line, name in rule(ast.parse(path.read_text(encoding="utf-8")))
    ]


@pytest.mark.slow
def test_no_module_can_run_code_from_data():
    assert found_in((".",), code_from_data) == []


def test_what_a_site_runs_needs_no_posix_system():
    assert found_in(SITE_PATH, needs_posix) == []


@pytest.mark.parametrize(
    "sample",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from marshal import loads",
        "import shelve",
        "import yaml\nyaml.load(text)",
        "import_module('pickle')",
        "importlib.import_module('dill')",
        "eval(text)",
        "run = eval",
        "exec(text)",
        "compile(text, '', 'exec')",
        "__import__('os')",
        "builtins.eval(text)",
        "os.system(text)",
        "from os import system",
        "os.popen(text)",
        "os.execv(path, [])",
        "subprocess.run(text, shell=True)",
        "subprocess.run(text, shell=flag)",
        "load(path, allow_pickle=True)",
    ],
)
def test_the_rule_on_code_finds_violations(sample):
    assert list(code_from_data(ast.parse(sample)))


@pytest.mark.parametrize(
    "sample",
    [
        "import fcntl",
        "from pwd import getpwuid",
        "import grp, json",
        "def f():\n    import resource",
        "import termios",
        "os.fork()",
        "os.getuid()",
        "from os import getuid",
        "os.fchmod(handle, 384)",
        "signal.SIGKILL",
        "from signal import SIGALRM",
        "signal.alarm(1)",
        "open('/proc/self/status')",
        "path.owner()",
    ],
)
def test_the_rule_on_posix_finds_violations(sample):
    assert list(needs_posix(ast.parse(sample)))


@pytest.mark.parametrize(
    "sample",
    [
        "import json\njson.loads(text)",
        "re.compile(text)",
        "os.open(path, os.O_EXCL)",
        "run(x, shell=False)",
        "m.group(1)",
    ],
)
def test_the_rules_let_other_code_pass(sample):
    tree = ast.parse(sample)
    assert not [*code_from_data(tree), *needs_posix(tree)]
