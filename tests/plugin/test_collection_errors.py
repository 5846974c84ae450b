"""A gate mark that can't hold is a collection error that names file, line, test, mark and reason."""

from __future__ import annotations

import re

import pytest

from .project import Project


BAD = """
    def test_good():
        pass

    @pytest.mark.cliff_at("x")
    @pytest.mark.accept_rate(0.5, 0.4)
    def test_bad():
        pass
"""


def test_all_bad_marks_are_named_at_once(project: Project) -> None:
    project.test(BAD)
    result = project.run(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting test_it.py*",
            "test_it.py:7: test_bad: accept_rate(0.5, 0.4): high must be at least low, not 0.4 under 0.5",
            "test_it.py:7: test_bad: cliff_at('x'): n must be a whole number, not 'x'",
        ]
    )
    assert project.measured == []


def test_a_bad_call_names_file_and_line(project: Project) -> None:
    project.test("@cliff_at(1)\ndef test_bad():\n    pass\n")
    result = project.run(errors=1)
    result.stdout.fnmatch_lines(["test_it.py:4: in <module>", "E   ValueError: n must be at least 2, not 1"])


@pytest.mark.parametrize("args", [["--collect-only"], ["-k", "good"], ["-m", "not specdec"]])
def test_selection_does_not_hide_it(project: Project, args: list[str]) -> None:
    project.test(BAD)
    project.run(*args, errors=1).stdout.fnmatch_lines(["*test_bad: cliff_at('x'): *"])


def test_xdist_reports_it_once(project: Project) -> None:
    pytest.importorskip("xdist")
    project.test(BAD)
    result = project.run("-n1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(re.findall(r"test_bad: cliff_at\('x'\): ", result.stdout.str())) == 1


def test_it_says_how_many_tests_share_the_mark(project: Project) -> None:
    project.test(
        """
        pytestmark = pytest.mark.cliff_at(1)

        def test_one():
            pass

        class TestTwo:
            def test_three(self):
                pass

        @pytest.mark.parametrize("k", [1, 2])
        def test_four(k):
            pass
        """
    )
    project.run(errors=1).stdout.fnmatch_lines(
        ["test_it.py:6: test_one: cliff_at(1): n must be at least 2, not 1 (and on 2 more)"]
    )


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            """
            class TestIt:
                @pytest.mark.specdec(kk=1)
                def test_bad(self):
                    pass
            """,
            "test_it.py:5: TestIt::test_bad: specdec(kk=1): unknown setting 'kk'; known: target, *",
        ),
        (
            """
            @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.lossless(3))])
            def test_bad(x):
                pass
            """,
            "test_it.py:4: test_bad?2?: lossless(3): *",
        ),
    ],
)
def test_classes_and_parameters(project: Project, source: str, told: str) -> None:
    project.test(source)
    project.run(errors=1).stdout.fnmatch_lines([told])


@pytest.mark.parametrize(
    "source",
    [
        """
        class TestIt(unittest.TestCase):
            @cliff_at(9)
            def test_method(self):
                pass
        """,
        """
        @cliff_at(9)
        class TestIt(unittest.IsolatedAsyncioTestCase):
            async def test_method(self):
                pass
        """,
        """
        pytestmark = cliff_at(9)

        class TestIt(unittest.TestCase):
            def test_method(self):
                pass
        """,
    ],
)
def test_a_unittest_method_is_out_of_reach(project: Project, source: str) -> None:
    project.test(source)
    project.run(errors=1).stdout.fnmatch_lines(
        ["test_it.py:*: TestIt::test_method: cliff_at(9): limits don't reach the methods of a unittest*"]
    )


def test_a_unittest_class_may_carry_settings(project: Project) -> None:
    project.test(
        "@specdec(k=4)\nclass TestIt(unittest.TestCase):\n    def test_method(self):\n        pass\n"
    )
    project.run(passed=1)


def test_an_item_that_is_no_function_is_out_of_reach(project: Project) -> None:
    project.conftest(
        """
        class File(pytest.File):
            def collect(self):
                item = Item.from_parent(self, name="line")
                item.add_marker("lossless")
                yield item


        class Item(pytest.Item):
            def runtest(self):
                raise AssertionError("never reached")


        def pytest_collect_file(file_path, parent):
            return File.from_parent(parent, path=file_path) if file_path.suffix == ".txt" else None
        """
    )
    (project.path / "it.txt").touch()
    project.run("it.txt", errors=1).stdout.fnmatch_lines(
        ["it.txt: line: lossless(): limits hold for test functions only, not for a Item; *"]
    )


def test_doctests_beside_gates_are_collected(project: Project) -> None:
    project.test(
        '''
        @cliff_at(9)
        def test_it():
            """Doc.

            >>> 1 + 1
            2
            """
        '''
    )
    project.run("--doctest-modules", passed=2)


def test_other_tests_still_run_when_asked_to(project: Project) -> None:
    project.test(BAD, test_other="def test_other():\n    pass\n")
    project.run("--continue-on-collection-errors", passed=1, errors=1)
