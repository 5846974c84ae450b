"""A class's marks hold for its methods, nested and inherited ones too."""

from __future__ import annotations

from .project import Project


def test_methods_of_a_class(project: Project) -> None:
    project.test(
        """
        @cliff_at(5)
        class TestIt:
            def test_fails(self):
                pass

            @cliff_at(9)
            def test_holds(self):
                pass

            class TestInner:
                def test_inner(self):
                    pass

        class TestChild(TestIt):
            pass
        """
    )
    result = project.run("-v", passed=2, failed=4)
    result.stdout.fnmatch_lines_random(
        [
            "*TestIt::test_fails FAILED*",
            "*TestIt::test_holds PASSED*",
            "*TestIt::TestInner::test_inner FAILED*",
            "*TestChild::test_fails FAILED*",
        ]
    )


def test_settings_of_a_class(project: Project) -> None:
    project.test(
        """
        @specdec(k=2)
        class TestIt:
            @accept_rate(0.5)
            def test_rate(self):
                pass

            @accept_length(2)
            def test_length(self):
                pass
        """
    )
    project.run(passed=2)
    assert [line.split()[-1] for line in project.asked if line.startswith("speculative")] == ["k=2", "k=2"]
