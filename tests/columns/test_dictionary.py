"""The data dictionary: terms, reference levels, and what it refuses."""

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import codes_of, levels_of
from consilience.errors import InvalidInputError


def test_a_category_has_one_term_for_each_level_but_the_reference():
    fuel = Column("fuel", ("diesel", "gas", "petrol"))
    assert fuel.terms == ("fuel[gas]", "fuel[petrol]")
    assert Column("fuel", fuel.levels, "gas").terms == ("fuel[diesel]", "fuel[petrol]")
    assert Column("age").terms == ("age",)
    assert Dictionary((Column("age"), fuel)).terms == ("age", "fuel[gas]", "fuel[petrol]")


def test_indicators_are_those_of_the_coded_levels():
    fuel = Column("fuel", ("diesel", "gas", "petrol"), "gas")
    np.testing.assert_array_equal(fuel.indicators(np.array([0, 1, 2])), [[1, 0], [0, 0], [0, 1]])


@pytest.mark.parametrize(
    ("levels", "reference", "said"),
    [
        (("a", "a"), None, "a level is listed twice"),
        (tuple(map(str, range(300))), None, "has 300 levels; a category has at most 255"),
        (("a", "b"), "c", "has no level 'c' to be the reference; it has a, b"),
        ((), "c", "it is a column of numbers"),
    ],
)
def test_senseless_columns_are_refused(levels, reference, said):
    with pytest.raises(InvalidInputError, match=said):
        Column("fuel", levels, reference)


@pytest.mark.parametrize(
    ("parts", "levels"),
    [
        ([["b", "a"], ["c", None]], ("a", "b", "c")),
        ([[2, 1], [3]], (1, 2, 3)),
        ([[True, False]], (False, True)),
        ([[1.5, float("nan")]], (1.5,)),
    ],
)
def test_levels_are_sorted_and_missing_values_are_none(parts, levels):
    assert levels_of([pa.array(part) for part in parts]) == levels


def test_a_dictionary_keeps_its_order_and_loses_levels_that_do_not_occur():
    column = pa.DictionaryArray.from_arrays([0, 2], ["low", "middle", "high"])
    assert levels_of([column]) == ("low", "high")
    assert levels_of([column, pa.array(["middle"])]) == ("high", "low", "middle")  # no common order


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_codes_are_places_among_the_levels(kind):
    column = pa.array(["b", "x", None, "a"], type=kind)
    assert codes_of(column, ("a", "b")).tolist() == [1, -2, -1, 0]


@pytest.mark.parametrize("kind", [pa.int8(), pa.float32(), pa.float64()])
def test_numbers_are_matched_by_value(kind):
    assert codes_of(pa.array([2, 7, None, 1], kind), (1, 2)).tolist() == [1, -2, -1, 0]
    assert codes_of(pa.array([True, False, None]), (False, True)).tolist() == [1, 0, -1]


def test_text_is_no_number():
    assert codes_of(pa.array(["1", None]), (1, 2)).tolist() == [-2, -1]
    assert codes_of(pa.array([1.0, None]), ("1", "2")).tolist() == [-2, -1]
