from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import InvalidInputError
from consilience.kit.policy.policy import COMMENTS, LOWER_IS_STRICTER, PROFILES, Policy
from consilience.kit.study import Minimum
from policy_cases import policy_with

HEAD = 'format = "consilience-policy"\nversion = 1\n'
MINIMA = st.builds(
    Minimum,
    rows=st.integers(1, 10**9),
    rows_per_level=st.integers(1, 10**6),
    rows_per_expert=st.integers(1, 10**6),
    require_signatures=st.booleans(),
)
POLICIES = st.builds(
    policy_with,
    st.sampled_from(sorted(PROFILES)),
    min_rows=st.integers(1, 1000),
    rows_per_level=st.integers(1, 100),
    rows_per_expert=st.integers(1, 100),
    effective_rows=st.integers(1, 100),
    require_signatures=st.booleans(),
)


@given(policy=POLICIES, minimum=MINIMA)
def test_a_study_only_tightens(policy: Policy, minimum: Minimum) -> None:
    tightened = policy.stricter(minimum)
    assert tightened.keeps(policy)
    assert tightened.site.min_rows >= minimum.rows
    assert tightened.site.rows_per_level >= minimum.rows_per_level
    assert min(tightened.experts.rows_per_expert, tightened.experts.effective_rows) >= minimum.rows_per_expert
    assert tightened.release.require_signatures >= minimum.require_signatures
    assert tightened.stricter(minimum) == tightened
    loose = Minimum(rows=1, rows_per_level=1, rows_per_expert=1)
    assert policy.stricter(loose) == policy


def test_profiles_are_ordered() -> None:
    hospital, research, open_ = (Policy.of_profile(name) for name in ("hospital", "research", "open"))
    assert hospital.keeps(research)
    assert research.keeps(open_)
    assert not research.keeps(hospital)
    assert Policy.from_text(HEAD) == hospital


def test_a_limit_is_stricter_in_its_own_direction() -> None:
    hospital = Policy.of_profile()
    for name, value in hospital.limits.items():
        if name != "approvals" and not isinstance(getattr(_table(hospital, name), name), bool):  # one is the least
            lower = type(getattr(_table(hospital, name), name))(value / 2)
            assert policy_with(**{name: lower}).keeps(hospital) == (name in LOWER_IS_STRICTER), name


def _table(policy: Policy, name: str) -> object:
    return next(part for part in vars(policy).values() if hasattr(part, name))


def test_the_text_has_a_comment_for_every_entry_and_round_trips(tmp_path) -> None:
    for name in PROFILES:
        policy = Policy.of_profile(name)
        text = policy.to_text()
        path = tmp_path / "policy.toml"
        path.write_text(text, encoding="utf-8")
        assert Policy.read(path) == policy
        tables = {key: value for key, value in tomllib.loads(text).items() if isinstance(value, dict)}
        assert {*tables, *(key for table in tables.values() for key in table)} <= set(COMMENTS)
        assert "no guarantee of privacy" in text


def test_the_hash_depends_on_limits_and_not_on_comments() -> None:
    policy = Policy.of_profile()
    assert Policy.from_text(HEAD + "# a comment\n").identity == policy.identity
    assert policy_with(min_rows=51).identity != policy.identity
    assert policy.identity.startswith("sha256:")


def test_a_loosened_profile_says_so() -> None:
    assert policy_with(min_rows=60).profile_text == "hospital"
    assert policy_with(min_rows=49).profile_text == "hospital, loosened"
    assert policy_with(allow_no_input=True).profile_text == "hospital, loosened"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a policy"),
        ('format = "consilience-policy"\nversion = 2', "version 2"),
        (HEAD + 'profile = "none"', "expected one of hospital, research, open"),
        (HEAD + "profile = 3", "expected one of"),
        (HEAD + "[site]\nmin_rows = 0", "site.min_rows"),
        (HEAD + "[site]\nmin_row = 10", "site has 'min_row', which is not a field"),
        (HEAD + "site = 3", "site"),
        (HEAD + "[experts]\ndominance_percent = 101", "experts.dominance_percent"),
        (HEAD + "[experts]\ndominance_percent = nan", "experts.dominance_percent"),
        (HEAD + '[rounds]\nquestions = ["__import__"]', "rounds.questions"),
        (HEAD + "[rounds]\nmax_leverage = 0", "rounds.max_leverage"),
        (HEAD + 'run = "x"', "run"),
    ],
)
def test_wrong_policies_are_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Policy.from_text(text)


OLD = {
    "hospital": "sha256:61e5d6f5e7d4fbe9437acb6e4d00be42b481d074d3cc5ad1108c09bcd3b90536",
    "research": "sha256:7213d7d1de7cad90d34516b7ec526423e9a7ca467a4ef7b0a78924285ce34efe",
    "open": "sha256:f2f5a14c508fda4e52839f3955c0b530b7d463d02b77e528f4559530ac181d9b",
    "changed": "sha256:236e39285ece26c1d6615d7fd9f804664fb6c913c4606ce7c19ee3b89e87c011",
}
OLD_ROUNDS = """
[rounds]
questions = ["Summarise", "Expect"]
max_leverage = 0.4
count_information = false
replay_check = false
max_refusals = 7
"""


def test_rules_for_rounds_of_earlier_versions_are_read_and_keep_the_identity_of_a_policy() -> None:
    """Identities as versions with these rules computed them."""
    assert Policy.of_profile("hospital").identity == OLD["hospital"]
    assert Policy.of_profile("research").identity == OLD["research"]
    assert Policy.of_profile("open").identity == OLD["open"]
    old = Policy.from_text(HEAD + OLD_ROUNDS)
    assert old.identity == OLD["changed"]
    assert old.keeps(Policy.of_profile())  # they are not applied
    assert Policy.of_profile().keeps(old)
    assert Policy.from_text(old.to_text()).identity == old.identity
    assert "max_leverage" not in Policy.of_profile().to_text()
