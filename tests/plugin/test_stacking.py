"""Nearer marks win: settings key by key, limits by name; on one level all limits hold, but one `cliff_at`."""

from __future__ import annotations

import pytest

from pytest_specdec.limits import Stack
from pytest_specdec.limits import stack

from .project import Project


def stacks(project: Project, source: str) -> dict[str, Stack]:
    project.test(source)
    items, _ = project.pytester.inline_genitems()
    return {item.nodeid.partition("::")[2]: stack(item) for item in items}


def limits(stacked: Stack) -> list[str]:
    return [limit.text for limit in stacked.limits]


def test_settings_merge_key_by_key_from_module_to_parameter(project: Project) -> None:
    found = stacks(
        project,
        """
        pytestmark = specdec(target="module", k=1, n_ctx=100)

        @specdec(target="class", k=2)
        class TestIt:
            @specdec(target="inner")
            class TestInner:
                def test_inner(self):
                    pass

            @specdec(k=3)
            @pytest.mark.parametrize("x", ["plain", pytest.param("own", marks=specdec(k=4))])
            def test_it(self, x):
                pass
        """,
    )
    assert found["TestIt::TestInner::test_inner"].settings == {"target": "inner", "k": 2, "n_ctx": 100}
    assert found["TestIt::test_it[plain]"].settings == {"target": "class", "k": 3, "n_ctx": 100}
    assert found["TestIt::test_it[own]"].settings == {"target": "class", "k": 4, "n_ctx": 100}


def test_a_package_is_farther_than_its_modules(project: Project) -> None:
    project.conftest(
        """
        def pytest_collection_modifyitems(items):
            for item in items:
                item.listchain()[1].add_marker(pytest.mark.specdec(k=7, n_ctx=7))
        """
    )
    found = stacks(project, "pytestmark = specdec(k=1)\n\ndef test_it():\n    pass\n")
    assert found["test_it"].settings == {"k": 1, "n_ctx": 7}


def test_the_nearest_level_that_has_a_limit_replaces_farther_ones(project: Project) -> None:
    found = stacks(
        project,
        """
        pytestmark = [accept_rate(0.1), lossless(), min_speedup(1.1)]

        @accept_rate(0.2)
        class TestIt:
            def test_class(self):
                pass

            @accept_rate(0.3)
            @accept_rate(0.0, 0.9)
            def test_function(self):
                pass

            @accept_rate(0.3)
            @pytest.mark.parametrize("x", [pytest.param(1, marks=[accept_rate(0.4), cliff_at(3)])])
            def test_param(self, x):
                pass

        def test_module():
            pass
        """,
    )
    rest = ["lossless()", "min_speedup(1.1)"]
    assert limits(found["test_module"]) == ["accept_rate(0.1)", *rest]
    assert limits(found["TestIt::test_class"]) == ["accept_rate(0.2)", *rest]
    assert sorted(limits(found["TestIt::test_function"])) == [
        "accept_rate(0, 0.9)",
        "accept_rate(0.3)",
        *rest,
    ]
    assert limits(found["TestIt::test_param[1]"]) == ["cliff_at(3)", "accept_rate(0.4)", *rest]


@pytest.mark.parametrize(
    "source",
    [
        "@cliff_at(7)\n@cliff_at(8)\ndef test_it():\n    pass\n",
        "pytestmark = [cliff_at(8), cliff_at(7)]\n\ndef test_it():\n    pass\n",
        "pytestmark = cliff_at(8)\n\n@cliff_at(7)\ndef test_it():\n    pass\n",
        "@cliff_at(7)\nclass TestIt:\n    test_it = lambda self: None\n",
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=[cliff_at(8), cliff_at(7)])])\n"
        "def test_it(x):\n    pass\n",
    ],
)
def test_of_several_cliffs_the_last_one_holds(project: Project, source: str) -> None:
    (stacked,) = stacks(project, source).values()
    assert limits(stacked) == ["cliff_at(7)"]


def test_a_mark_on_a_base_class_is_on_the_same_level(project: Project) -> None:
    found = stacks(
        project,
        """
        @specdec(k=1, n_ctx=10)
        @accept_rate(0.1)
        @cliff_at(3)
        class Base:
            def test_it(self):
                pass

        @specdec(k=2)
        @accept_rate(0.2)
        @cliff_at(4)
        class TestIt(Base):
            pass
        """,
    )
    stacked = found["TestIt::test_it"]
    assert limits(stacked) == ["cliff_at(4)", "accept_rate(0.1)", "accept_rate(0.2)"]
    assert stacked.settings == {"k": 2, "n_ctx": 10}


def test_the_same_limit_twice_is_one(project: Project) -> None:
    found = stacks(project, "@lossless()\n@lossless()\ndef test_it():\n    pass\n")
    assert limits(found["test_it"]) == ["lossless()"]


def test_what_is_measured_follows_the_nearest_settings(project: Project) -> None:
    project.test(
        """
        pytestmark = [specdec(k=2), accept_rate(0.5)]

        @specdec(k=5)
        def test_five():
            pass

        def test_two():
            pass

        @min_speedup(1.01, k=7)
        def test_seven():
            pass
        """
    )
    project.run(failed=1, passed=2)
    assert [line.split()[0] + line.split()[2] for line in project.asked if "target" in line] == [
        "speculativek=5",
        "speculativek=2",
        "speculativek=2",
        "speedk=7",
    ]
