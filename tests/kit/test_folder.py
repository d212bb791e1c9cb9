import pytest

from consilience.errors import InvalidInputError
from consilience.kit import folder as module
from consilience.kit.folder import FOLDERS, SiteFolder, SiteIdentity
from consilience.kit.private_files import RESERVED, slug


@pytest.fixture
def folder(tmp_path):
    return SiteFolder.init("Hospital Nörd", "min_rows = 10\n", tmp_path)


def _other_key(path):
    (path / "identity.pem").unlink()
    SiteIdentity.new().store(path / "identity.pem")


def test_init_makes_everything_that_open_checks(folder, tmp_path):
    names = {path.name for path in folder.path.iterdir() if not path.name.endswith(".lock")}
    assert names == {"policy.toml", "secret.key", "identity.pem", "ledger.jsonl", *FOLDERS}
    again = SiteFolder.open(folder.path)
    assert (again.name, again.policy) == ("Hospital Nörd", "min_rows = 10\n")
    assert again.identity.public_key == again.public_key
    assert [path.name for path in tmp_path.iterdir()] == ["hospital-nord"]
    assert folder.secret.hex() not in (folder.path / "ledger.jsonl").read_text()
    assert folder.secret.hex() not in repr(folder)


def test_init_refuses_an_existing_folder_and_leaves_it(folder, tmp_path):
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    for name in ("Hospital Nörd", "hospital nord"):
        with pytest.raises(InvalidInputError, match="there is a folder 'hospital-nord' already"):
            SiteFolder.init(name, "", tmp_path)
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("..\\windows", "windows"),
        ("a/b\\c:d", "a-b-c-d"),
        ("CON", "site-con"),
        ("nul.txt", "nul-txt"),
        ("Lpt1", "site-lpt1"),
        ("COM¹", "site-com1"),
        ("north.", "north"),
        ("-rf", "rf"),
        ("<b>x</b>", "b-x-b"),
        ("~", "site-"),
        ("..", "site-"),
        ("北", "site-"),
    ],
)
def test_names_become_folders_only_through_safe_letters(name, expected, tmp_path):
    found = slug(name)
    assert found == expected or (expected == "site-" and found.startswith(expected) and len(found) == 13)
    assert SiteFolder.init(name, "", tmp_path).path.parent == tmp_path


def test_long_names_are_cut_and_stay_different():
    first, second = slug("a" * 150), slug("a" * 151)
    assert first != second
    assert len(first) < 80
    assert not RESERVED & {slug(name) for name in RESERVED}
    for name in ("", "a\nb", "a\u202eb", "x" * 201):
        with pytest.raises(InvalidInputError, match="expected a name"):
            slug(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: (path / "secret.key").write_text("00" * 32), "not the secret with which this ledger began"),
        (lambda path: (path / "secret.key").write_text("00"), "is damaged"),
        (lambda path: (path / "secret.key").unlink(), "it lacks secret.key"),
        (lambda path: (path / "policy.toml").unlink(), "it lacks policy.toml"),
        (lambda path: (path / "tags").rmdir(), "it lacks tags"),
        (lambda path: (path / "ledger.jsonl").write_text(""), "does not say which site"),
        (lambda path: (path / "ledger.jsonl").write_text("{}\n"), "line 1"),
        (_other_key, "identity.pem is not the key that the ledger names"),
    ],
)
def test_open_names_what_is_missing_or_replaced(folder, change, said):
    change(folder.path)
    with pytest.raises(InvalidInputError, match=said):
        SiteFolder.open(folder.path)


def test_a_site_without_the_extra_has_no_key_and_can_make_one_later(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "is_available", lambda: False)
    folder = SiteFolder.init("north", "", tmp_path)
    assert folder.identity is folder.public_key is None
    assert not (folder.path / "identity.pem").exists()
    monkeypatch.undo()
    key = folder.make_key()
    assert SiteFolder.open(folder.path).identity.public_key == key == folder.public_key
    assert [entry.kind for entry in folder.entries] == ["init", "key"]
    with pytest.raises(InvalidInputError, match="never overwritten"):
        folder.make_key()


def test_a_failed_init_leaves_nothing(tmp_path, monkeypatch):
    def fails(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_fill", fails)
    with pytest.raises(InvalidInputError, match="No space left"):
        SiteFolder.init("north", "", tmp_path)
    assert not list(tmp_path.iterdir())
