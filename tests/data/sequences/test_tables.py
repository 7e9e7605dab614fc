"""Tables as other programs write them: separators, decimals, encodings, and the line of a mistake."""

import pyarrow
import pyarrow.parquet
import pytest

from trellisnet.data import load

OPTIONS = {"task": "forecasting", "values": ["Größe"], "window": 2, "standardise": False}
GERMAN = {"separator": ";", "decimal": ",", "encoding": "cp1252"}


def read(path, **options):
    return load("series", path=path, **{**OPTIONS, **options}).splits["train"].values[:, 0].tolist()


def write(path, separator=";", decimal=",", encoding="cp1252"):
    lines = [f"Tag{separator}Größe", *(f"{i}{separator}{i}{decimal}5" for i in range(10))]
    path.write_bytes("\r\n".join(lines).encode(encoding))
    return path


@pytest.mark.parametrize(
    "options",
    [
        GERMAN,
        {"separator": "tab", "decimal": ",", "encoding": "utf-16"},
        {"separator": "\t", "encoding": "latin-1"},
        {"separator": "|"},
        {},
    ],
)
def test_other_dialects(tmp_path, options):
    written = {"separator": ",", "decimal": ".", "encoding": "utf-8", **options}
    path = write(tmp_path / "a.csv", **{**written, "separator": written["separator"].replace("tab", "\t")})
    assert read(path, **options) == [i + 0.5 for i in range(10)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ",", "separator": ";"}, r"must be UTF-8, but is not from line 1 on: .* option encoding, such as"),
        ({"encoding": "cp1252"}, r"must have a column 'Größe', got 'Tag;Größe' \(read with separator ',', decimal"),
        (
            {"encoding": "cp1252", "separator": ";"},
            r"line 2: must be a number, got '0,5'; decimal is '\.', and decimal =",
        ),
        ({"decimal": ","}, r"separator and decimal must differ, got ',' for both"),
        ({**GERMAN, "decimal": "'"}, r"decimal must be one of '\.', ',', got"),
        ({**GERMAN, "separator": ";;"}, r"separator must be one character, .* got ';;'"),
        ({**GERMAN, "encoding": "klingon"}, r"encoding must be one that Python knows, such as latin-1, got 'klingon'"),
        ({**GERMAN, "encoding": "rot13"}, r"encoding must be one that Python knows, such as latin-1, got 'rot13'"),
        ({**GERMAN, "encoding": 8}, r"encoding must be one that Python knows, such as latin-1, got 8"),
    ],
)
def test_the_option_that_is_missing_or_wrong_is_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / "a.csv"), **options)


def test_a_point_is_not_dropped_from_numbers_with_a_decimal_comma(tmp_path):
    path = write(tmp_path / "a.csv", decimal=".")
    with pytest.raises(ValueError, match=r"line 2: must be a number, got '0\.5'; decimal is ',', and decimal = '\.'"):
        read(path, **GERMAN)


def test_a_row_with_too_many_fields_names_the_dialect(tmp_path):
    path = write(tmp_path / "a.csv", separator=",", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2 must have 2 fields, got 3 \(read with separator ',', decimal '\.'"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n\n\n1,2\n\n3,x\n", r"column 'b', line 6: must be a number, got 'x'"),
        ('a,b\n\n"1\n\n",2\n3,x\n', r"column 'b', line 6: must be a number"),  # a field of three lines
        ('a,b\n1,2\n\n"3\n\n",x\n', r"column 'b', line 4: must be a number"),  # where the row begins
        ("a,b\r\n\r\n1,2\r\n\r\n1,2,3\r\n", r"line 5 must have 2 fields, got 3"),
        ("a,b,b\n1,2,3\n", r"must have one column 'b', got 2"),
        ("a,b\n1,2\n3,-inf\n", r"column 'b', line 3: must be a finite number, got '-inf'$"),
    ],
)
def test_the_line_of_a_mistake(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    with pytest.raises(ValueError, match=message):
        read(path, values=["b"])


def test_options_of_csv_files_are_refused_for_others(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"Größe": [1.0, 2.0]}), path)
    with pytest.raises(ValueError, match=r"belong to CSV files, got separator ';', .* for .*a\.parquet"):
        read(path, separator=";")
    with pytest.raises(ValueError, match=r"separator belongs to tables, got ';'; a\.npy has arrays"):
        read("a.npy", values=None, separator=";")
