"""Quantities as text, against pint where both know a unit, and the refusals."""

import pint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import UserError
from perfmodel.specs.units import change, parse, show

PINT = pint.UnitRegistry()
DETERMINISTIC = settings(derandomize=True, deadline=None)


@pytest.mark.parametrize(
    ("text", "unit", "pint_text", "pint_unit"),
    [
        ("80 GB", "B", "80 gigabyte", "byte"),
        ("80 GiB", "B", "80 gibibyte", "byte"),
        ("143771 MiB", "B", "143771 mebibyte", "byte"),
        ("512 KiB", "B", "512 kibibyte", "byte"),
        ("230 MB", "B", "230 megabyte", "byte"),
        ("1.5 TB", "B", "1.5 terabyte", "byte"),
        ("21 PB/s", "B/s", "21 petabyte/second", "byte/second"),
        ("3.35 TB/s", "B/s", "3.35 terabyte/second", "byte/second"),
        ("400 Gb/s", "B/s", "400 gigabit/second", "byte/second"),
        ("4 TiB/s", "B/s", "4 tebibyte/second", "byte/second"),
        ("8 b", "B", "8 bit", "byte"),
        ("300 ns", "s", "300 nanosecond", "second"),
        ("5 us", "s", "5 microsecond", "second"),
        ("5 µs", "s", "5 microsecond", "second"),
        ("2 min", "s", "2 minute", "second"),
        ("2 ms", "s", "2 millisecond", "second"),
        ("1 h", "s", "1 hour", "second"),
        ("3 day", "s", "3 day", "second"),
        ("14.3 kW", "W", "14.3 kilowatt", "watt"),
        ("10 MW", "W", "10 megawatt", "watt"),
        ("3 MJ", "J", "3 megajoule", "joule"),
        ("0.9 GHz", "1/s", "0.9 gigahertz", "hertz"),
        ("725 mm2", "mm2", "725 millimeter**2", "millimeter**2"),
        ("50 %", "1", "0.5", ""),
    ],
)
def test_a_written_quantity_is_what_pint_reads(text, unit, pint_text, pint_unit):
    assert parse(text, unit) == pytest.approx(PINT.Quantity(pint_text).to(pint_unit).magnitude, rel=1e-12)


def test_decimal_and_binary_prefixes_differ():
    assert parse("1 GB", "B") == 1e9
    assert parse("1 GiB", "B") == 2**30
    assert parse("1 TiB/s", "B/s") / parse("1 TB/s", "B/s") == pytest.approx(1.0995, rel=1e-4)


def test_a_bit_is_an_eighth_of_a_byte():
    assert parse("8 Gb/s", "B/s") == parse("1 GB/s", "B/s") == 1e9


@pytest.mark.parametrize("text", ["989.4 TFLOP/s", "989.4 TFLOPS", "989.4 TOP/s", "989400 GFLOP/s", "0.9894 PFLOPS"])
def test_rates_of_arithmetic(text):
    assert parse(text, "FLOP/s") == pytest.approx(989.4e12, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "value"), [(5, 5.0), ("1e9 SI", 1e9), ("1_000 SI", 1000.0), ("-3.5 SI", -3.5), ("0", 0)]
)
def test_a_number_as_such_is_in_the_inside_unit(text, value):
    assert parse(text, "B") == value


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("1e9", 1e9), ("1_000", 1000.0), ("4k", 4e3), ("4Ki", 4096.0)])
def test_a_count_needs_no_unit(text, value):
    assert parse(text, "1") == value
    assert parse(text, "1/s") == value


@pytest.mark.parametrize("text", ["1,000 B", "1,024,000 B", "1,000"])
def test_a_comma_is_a_list(text):
    with pytest.raises(UserError, match="a comma separates a list"):
        parse(text, "B")


@pytest.mark.parametrize("text", ["1,5 GB", "3,35 GB", "80,0 GB", "1,00,0 GB"])
def test_a_decimal_comma_is_refused(text):
    """It would otherwise be read as a whole number ten or a hundred times as large."""
    with pytest.raises(UserError):
        parse(text, "B")


@pytest.mark.parametrize(
    ("text", "unit", "complaint"),
    [
        ("nan", "B", "not finite"),
        (float("nan"), "B", "not finite"),
        (float("inf"), "B", "not finite"),
        ("inf GB", "B", "not a quantity"),
        ("1e400 B", "B", "not finite"),
        ("80 parsec", "B", "unknown unit 'parsec'"),
        ("80 gb", "B", "unknown unit 'gb'"),
        ("80 GBps", "B/s", "unknown unit"),
        ("80 GB/s/s", "B", "unknown unit"),
        ("80 GB", "B/s", "expected B/s"),
        ("3 TB/s", "B", "expected B"),
        ("3 TFLOP", "FLOP/s", "expected FLOP/s"),
        ("3 W", "J", "expected J"),
        ("3 s", "1/s", "expected 1/s"),
        ("fast", "B/s", "not a quantity"),
        ("", "B", "not a quantity"),
        (True, "B", "expected"),
    ],
)
def test_refusals_are_one_line_that_shows_how_to_write_it(text, unit, complaint):
    with pytest.raises(UserError) as refusal:
        parse(text, unit)
    message = str(refusal.value)
    assert complaint in message
    assert "\n" not in message
    assert "write" in message or "expected" in message


@DETERMINISTIC
@given(
    st.floats(1e-12, 1e21),
    st.sampled_from(["B", "B/s", "FLOP/s", "s", "W", "J", "USD", "mm2", "1", "1/s"]),
)
def test_what_is_shown_can_be_read_again(value, unit):
    # Thousands are shown apart for the eye; written, a comma is a list.
    assert parse(show(value, unit, digits=17).replace(",", ""), unit) == pytest.approx(value, rel=1e-12)


@DETERMINISTIC
@given(st.floats(1e-12, 1e21), st.sampled_from(["B", "B/s", "FLOP/s", "s", "W", "1"]))
def test_four_digits_are_shown_within_half_a_digit(value, unit):
    assert parse(show(value, unit).replace(",", ""), unit) == pytest.approx(value, rel=5.1e-4)


def test_what_is_not_published_is_shown_so():
    assert show(float("nan"), "B") == "not published"


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("+50%", 2.0, 3.0),
        ("-10%", 2.0, 1.8),
        ("x2", 2.0, 4.0),
        ("×0.5", 2.0, 1.0),
        ("3 GB", 2.0, 3e9),
        ("+ 5 %", 2, 2.1),
    ],
)
def test_relative_changes(text, old, new):
    assert change(text, "B", old) == pytest.approx(new, rel=1e-12)


@DETERMINISTIC
@given(st.floats(1e-9, 1e18), st.integers(0, 400))
def test_a_change_and_its_factor_agree(old, percent):
    assert change(f"+{percent}%", "B", old) == pytest.approx(change(f"x{1 + percent / 100}", "B", old), rel=1e-12)
