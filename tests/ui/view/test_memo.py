"""What was drawn is kept while it would be drawn the same again, and only that."""

from __future__ import annotations

from gpumon.ui.view.frame import Memo


def test_a_function_is_called_again_only_when_an_argument_has_changed() -> None:
    called: list[tuple[int, ...]] = []

    def total(*numbers: int) -> int:
        called.append(numbers)
        return sum(numbers)

    memo = Memo()
    assert [memo(total, 1, 2), memo(total, 1, 2), memo(total, 1, 3), memo(total, 1, 2)] == [
        3,
        3,
        4,
        3,
    ]
    assert called == [(1, 2), (1, 3), (1, 2)]


def test_with_a_key_of_its_own_a_result_lasts_as_long_as_the_key() -> None:
    memo = Memo()
    assert [memo.by(second, str, value) for second, value in ((7, 1.0), (7, 1.5), (8, 2.0))] == [
        "1.0",
        "1.0",
        "2.0",
    ]
    assert memo.newest(str) == "2.0"
    assert memo.newest(int) is None


def test_a_thing_among_several_has_results_of_its_own_until_it_is_gone() -> None:
    memo, made = Memo(), []

    def make(name: str) -> str:
        made.append(name)
        return name.upper()

    for _ in range(3):
        assert [memo.part(name)(make, name) for name in ("a", "b")] == ["A", "B"]
    assert made == ["a", "b"]
    memo.keep(["b", "never drawn"])
    assert [memo.part(name)(make, name) for name in ("a", "b")] == ["A", "B"]
    assert made == ["a", "b", "a"]
