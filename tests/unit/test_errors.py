"""Tests of the error message for an unknown name, and of the first line of TensorFlow's errors."""

from t2t_repro.errors import UserError, counted, first_line, unknown


def test_the_nearest_name_is_offered_or_all_are_listed() -> None:
    for name, names, cure in (
        ("text_flies", ["numbers_ende", "text_files"], "did you mean 'text_files'?"),
        ("xyz", iter(["text_files", "numbers_ende"]), "there are: numbers_ende, text_files"),
        ("text_files", [], "there are: none"),
    ):
        error = unknown("problem", name, names)
        assert isinstance(error, UserError) and str(error) == f"unknown problem '{name}'; {cure}"


def test_a_noun_is_plural_unless_there_is_one() -> None:
    assert [counted(number, "line") for number in (0, 1, 2000)] == [
        "0 lines",
        "1 line",
        "2,000 lines",
    ]


def test_the_first_line_has_no_names_of_graph_nodes() -> None:
    text = (
        "{{function_node __wrapped__SaveV2_device_/job:x/device:CPU:0}} a/b; No space left "
        "[Op:SaveV2] name: \nmore"
    )
    assert first_line(ValueError(text)) == "a/b; No space left"
    assert first_line(ValueError(" ")) == "ValueError"
