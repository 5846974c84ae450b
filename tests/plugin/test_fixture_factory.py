"""The fixture `specdec_factory` makes benches for other settings, in fixtures of any scope."""

from __future__ import annotations

from .project import Project


def test_it_makes_benches(project: Project) -> None:
    project.test(
        """
        @pytest.fixture(scope="module")
        def other(specdec_factory):
            return specdec_factory(target="other.gguf", k=6)

        def test_it(other):
            assert other.speculate().k == 6
            other.check(accept_rate(0.1))

        def test_bad(specdec_factory):
            with pytest.raises(ValueError, match="unknown setting 'kk'"):
                specdec_factory(kk=1)
        """
    )
    project.run(passed=2)
    assert project.asked[1] == f"speculative target={project.path}/other.gguf k=6"


def test_a_check_belongs_to_the_test_that_makes_it(project: Project) -> None:
    project.test(
        """
        @pytest.fixture(scope="module")
        def other(specdec_factory):
            return specdec_factory(k=6)

        def test_one(other):
            other.check(accept_rate(0.1))

        def test_two(other):
            other.check(accept_rate(0.9))
        """
    )
    project.run(passed=1, failed=1)
    assert {name: len(found) for name, found in project.verdicts().items()} == {"test_one": 1, "test_two": 1}


def test_measuring_needs_a_running_test(project: Project) -> None:
    project.test(
        """
        def test_it(specdec_factory):
            pytest.kept = specdec_factory()
        """
    )
    project.conftest(
        """
        def pytest_sessionfinish():
            with pytest.raises(RuntimeError, match="no test is running"):
                pytest.kept.decode()
            del pytest.kept
        """
    )
    assert project.run(passed=1).ret == 0


def test_a_session_fixture_may_measure(project: Project) -> None:
    project.test(
        """
        @pytest.fixture(scope="session")
        def curve(specdec_factory):
            return specdec_factory().verify_curve()

        def test_it(curve):
            assert curve.n[0] == 1
        """
    )
    project.run(passed=1)
