"""Marks that a conftest or a fixture adds after collection hold too, and bad ones don't pass unseen."""

from __future__ import annotations

from .project import Project


def add(project: Project, mark: str) -> None:
    project.conftest(
        f"""
        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker({mark})
        """
    )


def test_a_limit_of_a_conftest_holds(project: Project) -> None:
    project.test("def test_it():\n    pass\n")
    add(project, "pytest.mark.cliff_at(5)")
    project.run(failed=1).stdout.fnmatch_lines(["cliff_at(5): fail: *"])
    project.run("-m", "not specdec", deselected=1)


def test_a_bad_one_is_an_error_of_the_test(project: Project) -> None:
    project.test("def test_it():\n    pass\n")
    add(project, "pytest.mark.cliff_at(1)")
    project.run(errors=1).stdout.fnmatch_lines(["*test_it: cliff_at(1): n must be at least 2, not 1*"])


def test_a_unittest_method_is_an_error_too(project: Project) -> None:
    project.test("class TestIt(unittest.TestCase):\n    def test_method(self):\n        pass\n")
    add(project, "pytest.mark.lossless()")
    project.run(errors=1).stdout.fnmatch_lines(["*lossless(): limits don't reach the methods of *"])


def test_a_limit_of_a_fixture_holds(project: Project) -> None:
    project.test(
        """
        @pytest.fixture(params=["cliff_at(9)", "cliff_at(5)", "cliff_at(1)"])
        def mark(request):
            request.applymarker(eval("pytest.mark." + request.param))

        def test_it(mark):
            pass
        """
    )
    result = project.run(passed=1, failed=2)
    result.stdout.fnmatch_lines(["cliff_at(5): fail: *", "cliff_at(1): n must be at least 2, not 1"])
