"""`--specdec-replay` answers every mark from a machine's baselines; nothing is measured, nothing recorded."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from pytest_specdec.bench.session import BenchSession
from pytest_specdec.engine.process import ProcessEngine
from pytest_specdec.store.published import PUBLISHED
from pytest_specdec.verdict import Outcome
from pytest_specdec.verdict import Verdict

from .project import Project


MACHINE = "apple-m5-pro-24gb-metal"
PAIR = "qwen2.5-7b-instruct-q4-k-m--qwen2.5-0.5b-instruct-q4-k-m"
REPLAY = f"--specdec-replay={MACHINE}"
TOLD = "replayed from published numbers, not measured here"


@pytest.fixture
def mac(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without double, in which no worker can start."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a replay has no engine")

    (project.path / "conftest.py").unlink()
    project.pytester.makeini("[pytest]\nfilterwarnings = default\n")
    monkeypatch.setattr(ProcessEngine, "__init__", refuse)
    return project


def held(mac: Project, limit: str, *args: str, settings: str = "") -> Verdict:
    """Return the verdict on one limit."""
    mac.test(f"@{limit}\n@specdec({settings})\ndef test_it():\n    pass\n")
    mac.run(REPLAY, *args)
    (verdict,) = mac.verdicts()["test_it"]
    return verdict


def test_marks_hold_on_real_metal_numbers(mac: Project) -> None:
    mac.test(
        """
        @cliff_at(9)
        @no_cliff(8)
        @plateau(9, 32)
        @dip_at(3)
        @max_verify_cost(8, 2.5)
        @max_draft_cost(0.17)
        @accept_rate(0.2, 0.8)
        @min_speedup(1.05, k=3)
        @ledger_closes(0.04)
        def test_it():
            pass
        """
    )
    mac.run(REPLAY, passed=1, warnings=0)
    verdicts = {verdict.limit: verdict for verdict in mac.verdicts()["test_it"]}
    assert len(verdicts) == 9
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.PASS}
    assert all(verdict.because.endswith(f" [{TOLD}]") for verdict in verdicts.values())
    assert "the first cliff is at 9 (T(9)/T(8) = 1.76, no bounds)" in verdicts["cliff_at(9)"].because
    assert verdicts["accept_rate(0.2, 0.8)"].value == 0.52
    assert all(verdict.low is verdict.high is None for verdict in verdicts.values())


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("cliff_at(5)", "the first cliff is at 9 (T(9)/T(8) = 1.76, no bounds), not at 5 (T(5)/T(4) = 1.07)"),
        ("no_cliff(9)", "there is a cliff at 9"),
        ("plateau(4, 8)", "plateaus here: 9-32"),
        ("dip_at(5)", "dips here: 3"),
        ("max_verify_cost(8, 2.4)", "verifying 8 tokens costs 2.47 times a one-token pass"),
        ("max_draft_cost(0.16)", "costs 0.165 of a target pass (2.82 against 17.07 ms, a published value"),
        (
            "accept_rate(0.6)",
            "acceptance rate 0.52 (published without counts, k = 3, two-model) is below 0.6",
        ),
        ("min_speedup(1.05, k=7)", "0.73x (published, a point value without an interval), below 1.05"),
        ("ledger_closes(0.01)", "more than 1% off"),
    ],
)
def test_marks_fail_on_them(mac: Project, limit: str, told: str) -> None:
    verdict = held(mac, limit)
    assert verdict.outcome is Outcome.FAIL
    assert told in verdict.because
    assert verdict.because.endswith(f" [{TOLD}]")


def test_tokens_per_round_are_held_where_the_rounds_are_known(mac: Project) -> None:
    verdict = held(mac, "accept_length(3)", settings="k=7")
    assert (verdict.outcome, verdict.value) == (Outcome.PASS, 3.0625)
    assert "(196 tokens in 64 rounds, published, k = 7, two-model) reaches 3" in verdict.because
    assert held(mac, "accept_length(3.1)", settings="k=7").outcome is Outcome.FAIL


def test_a_point_value_proves_nothing(mac: Project) -> None:
    verdict = held(mac, "min_speedup(1.05, prove=True)")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "at least 1.05, but prove=True needs an interval" in verdict.because
    assert held(mac, "min_speedup(1.2, prove=True)").outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("limit", "settings", "told"),
    [
        (
            "lossless()",
            "",
            f"the replay of {MACHINE} has no exactness; it has draft cost, ledger, speculative",
        ),
        ("accept_rate(0.1)", "k=9", "no speculative run at k = 9; it has k = 1, 2, 3, 4, 5, 7, 11, 16"),
        ("cliff_at(9)", "depth=256", "no verify curve at depth = 256; it has depth = 0"),
        ("accept_rate(0.1)", "method='ngram'", "at method = ngram; it has method = two-model"),
        ("accept_length(2)", "", "published without its rounds (k = 3, two-model): accept_rate can be held"),
        ("accept_at(1, 0.5)", "k=7", "nothing is known of positions"),
        (
            "cliff_at(9)",
            "target='gemma-3-270m'",
            f"has no pair gemma-3-270m--{PAIR.split('--')[1]}; it has {PAIR}",
        ),
        ("within_baseline('speedup')", "k=9", "no speed run at k = 9"),
    ],
)
def test_what_is_not_published_is_not_measured(mac: Project, limit: str, settings: str, told: str) -> None:
    verdict = held(mac, limit, "--specdec-missing=skip", settings=settings)
    assert verdict.outcome is Outcome.NOT_MEASURED
    assert told in verdict.because
    assert not verdict.policy_skip
    assert mac.reports[1].failed


def test_a_replay_holds_its_own_baseline(mac: Project) -> None:
    mac.test("@within_baseline('curve', 'acceptance', 'speedup')\ndef test_it():\n    pass\n")
    mac.run(REPLAY, passed=1, warnings=0)
    verdicts = mac.verdicts()["test_it"]
    assert len(verdicts) == 3
    assert all(verdict.because.endswith(f"[{TOLD}, and held against itself]") for verdict in verdicts)


def test_a_replay_fails_another_baseline_and_leaves_no_candidate(mac: Project) -> None:
    folder = mac.path / "baselines" / MACHINE
    shutil.copytree(PUBLISHED / MACHINE, folder)
    path = folder / f"{PAIR}.json"
    other = json.loads(path.read_text())
    entries = other["entries"]
    entries["verify_curve depth=0"]["measurement"]["samples_ms"][8] = [[50.0]]
    run = "k=3 method=two-model n_ctx=2048 n_predict=192"
    entries[f"speculative {run}"]["measurement"]["published"]["rate"] = 0.6
    entries[f"speed {run}"]["measurement"]["published"]["speculative_tokens_per_s"] = 90.0
    path.write_text(json.dumps(other))
    before = path.read_bytes()
    mac.test("@within_baseline('curve', 'acceptance', 'speedup')\ndef test_it():\n    pass\n")
    result = mac.run(REPLAY, failed=1)
    acceptance, curve, speedup = mac.verdicts()["test_it"]
    assert {v.outcome for v in (acceptance, curve, speedup)} == {Outcome.FAIL}
    assert "acceptance rate 0.52, was 0.60 (published)" in acceptance.because
    assert "T(9)/T(1) was 2.75, is 4.35" in curve.because
    assert "speedup is 1.13x (published, no interval), was 1.56x" in speedup.because
    assert all("itself" not in v.because for v in (acceptance, curve, speedup))
    assert path.read_bytes() == before
    assert sorted(p.name for p in (mac.path / "baselines").iterdir()) == [MACHINE]
    result.stdout.no_fnmatch_line("*to accept*")


def test_what_got_better_is_no_failure(mac: Project) -> None:
    folder = mac.path / "baselines" / MACHINE
    shutil.copytree(PUBLISHED / MACHINE, folder)
    path = folder / f"{PAIR}.json"
    other = json.loads(path.read_text())
    run = "k=3 method=two-model n_ctx=2048 n_predict=192"
    other["entries"][f"speculative {run}"]["measurement"]["published"]["rate"] = 0.3
    path.write_text(json.dumps(other))
    verdict = held(mac, "within_baseline('acceptance')")
    assert verdict.outcome is Outcome.PASS
    assert verdict.because.startswith("better: acceptance rate 0.52, was 0.30 (published)")


def test_header_and_summary_say_what_it_is(mac: Project) -> None:
    mac.test("@min_speedup(1.05)\ndef test_it():\n    pass\n")
    mac.run(REPLAY, passed=1).stdout.fnmatch_lines(
        [
            f"specdec: {TOLD}: machine {MACHINE}, {PAIR}",
            f"{PAIR}: speculation pays where these numbers are from: *1.13x (published, *",
            f"{TOLD}: {MACHINE}",
        ]
    )


@pytest.mark.parametrize("update", ["new", "all"])
def test_a_replay_records_nothing(mac: Project, update: str) -> None:
    mac.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    result = mac.run(REPLAY, f"--specdec-update={update}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --specdec-update={update} and --specdec-replay exclude each other: *"]
    )
    assert not (mac.path / "baselines").exists()


def test_an_unknown_machine_is_bad_usage(mac: Project) -> None:
    mac.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    result = mac.run("--specdec-replay=apple-m9")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --specdec-replay: *apple-m9: is neither a published machine nor a folder; *{MACHINE}"]
    )


def test_the_pair_is_the_replayed_one_or_must_be(mac: Project) -> None:
    mac.test(
        """
        @accept_rate(0.5)
        def test_given_by_the_replay(specdec):
            assert specdec.settings.target == "qwen2.5-7b-instruct-q4-k-m"
            assert specdec.settings.draft == "qwen2.5-0.5b-instruct-q4-k-m"

        @accept_rate(0.5)
        @specdec(target="models/Qwen2.5-7B-Instruct-Q4_K_M.gguf", draft="Qwen2.5-0.5B-Instruct-Q4_K_M.gguf")
        def test_given_as_files_that_need_not_be_there():
            pass
        """
    )
    mac.run(REPLAY, passed=2)


def test_the_fixtures_replay_too(mac: Project) -> None:
    mac.test(
        """
        def test_bench(specdec):
            assert specdec.verify_curve().medians_ms()[9] == 78.98
            assert [run.published.rate for run in specdec.sweep([1, 3]).values()] == [0.7143, 0.52]
            assert specdec.speed(k=3, until=lambda run: False).speculative_tokens_per_s() == 65.28
            assert specdec.draft_cost().draft_ms == (2.817,)
            assert [row.k for row in specdec.ledger().tested] == [2, 5]
            assert [row.k for row in specdec.ledger((1, 2, 3), (4, 5, 7, 11)).tested] == [4, 5, 7, 11]
            specdec.check(cliff_at(9))

        def test_nothing_to_read(specdec):
            specdec.facts()

        def test_no_such_length(specdec):
            specdec.ledger((1, 2), (9,))

        def test_machine(specdec_machine):
            assert specdec_machine.hard["chip"] == "Apple M5 Pro"
        """
    )
    result = mac.run(REPLAY, passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            f"*the replay of {MACHINE} has no model files to read",
            "*the replayed ledger has no k = 9; it has k = 1, 2, 3, 4, 5, 7, 11",
        ]
    )


def test_the_json_file_keeps_replayed_and_measured_apart(mac: Project) -> None:
    mac.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    mac.run(REPLAY, "--specdec-json=run.json", passed=1)
    told = json.loads((mac.path / "run.json").read_text())
    assert told["measured"] == []
    (replayed,) = told["replayed"]
    assert replayed["machine_name"] == MACHINE
    assert replayed["hello"]["ggml_commit"] == "8ed274ef4"
    assert [kept["measurement"]["source"] for kept in replayed["kept"]] == ["published"]
    assert told["tests"][0]["pair"] == " + ".join(PAIR.split("--"))


def test_ini_and_environment_know_it(mac: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    mac.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    mac.pytester.makeini(f"[pytest]\nspecdec_replay = {MACHINE}\n")
    mac.run(passed=1)
    mac.pytester.makeini("[pytest]\n")
    monkeypatch.setenv("SPECDEC_REPLAY", MACHINE)
    mac.run(passed=1)


def test_gates_replay_under_xdist(mac: Project) -> None:
    pytest.importorskip("xdist")
    mac.test("@cliff_at(9)\ndef test_it():\n    pass\n")
    result = mac.pytester.runpytest_subprocess("-n1", "-p", "no:hypothesispytest", REPLAY)
    result.assert_outcomes(passed=1)


def test_a_recorded_machine_is_replayed_from_its_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.test("@cliff_at(9)\n@accept_rate(0.5)\n@min_speedup(1.05)\ndef test_it():\n    pass\n")
    project.run("--specdec-update=new", "--specdec-machine=lab", passed=1)
    asked = project.asked
    (project.path / "conftest.py").unlink()
    monkeypatch.setattr(BenchSession, "rig", property(lambda self: pytest.fail("a replay has no rig")))
    result = project.run("--specdec-replay=baselines/lab", passed=1)
    assert project.asked == asked
    told = "replayed from the baselines of lab, not measured here"
    result.stdout.fnmatch_lines(
        [
            f"specdec: {told}: machine lab, toy--none",
            "toy--none: speculation pays where these numbers are from: *",
        ]
    )
    assert all(told in verdict.because for verdict in project.verdicts()["test_it"])


def test_the_suite_replays(mac: Project) -> None:
    result = mac.run(REPLAY, "--pyargs", "pytest_specdec.suite", passed=4, failed=5)
    result.stdout.fnmatch_lines_random(
        [
            "lossless(): not measured: *has no exactness*",
            "within_baseline('kernels'): not measured: *has no kernel map*",
            "within_baseline('forward_share'): not measured: *has no timeline*",
            "within_baseline('overhead'): not measured: published totals don't tell the time of rounds*",
            "structurally_sound(): not measured: *has no structure*",
        ]
    )


def test_no_package_but_the_plugins_own_is_needed(mac: Project) -> None:
    (mac.path / "without.py").write_text("import sys\nsys.modules.update(llama_cpp=None, gguf=None)\n")
    mac.test("@cliff_at(9)\n@min_speedup(1.05)\ndef test_it():\n    pass\n")
    mac.pytester.runpytest_subprocess("-p", "without", REPLAY).assert_outcomes(passed=1)
