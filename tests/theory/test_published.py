"""The analysis reproduces what others published."""

from __future__ import annotations

import pytest

from pytest_specdec.theory import ledger
from pytest_specdec.theory import roofline
from pytest_specdec.theory import steps
from pytest_specdec.theory.acceptance import Acceptance

from . import published


CURVE = published.article_curve()
COSTS = CURVE | {17: published.T17_MS}


def test_article_has_its_cliff_at_9_its_dip_at_3_and_its_plateau() -> None:
    found = steps.find_steps(list(CURVE), list(CURVE.values()))
    (cliff,) = found.cliffs
    assert (cliff.n, cliff.after) == (9, 8)
    assert cliff.ratio == pytest.approx(1.76, abs=0.005)
    assert cliff.where() == "9"
    assert found.dips == (3,)
    assert found.drops == ()
    assert found.plateaus == ((9, 32),)
    assert found.safe_draft_length == 7
    assert found.largest == cliff
    assert found.straddling == ()


def test_article_keeps_cliff_and_dip_within_its_reruns() -> None:
    # A full rerun differed by at most 3.8 %; half of that as the standard deviation of each value.
    found = steps.find_steps(list(CURVE), list(CURVE.values()), noise=[0.019 * ms for ms in CURVE.values()])
    assert [step.n for step in found.cliffs] == [9]
    assert found.straddling == ()
    assert found.dips == ()  # 3.1 % is inside that


@pytest.mark.parametrize(
    "row", published.table("cliff_m5pro_metal_four_models"), ids=lambda row: row["model"]
)
def test_article_finds_the_cliff_at_one_place_on_four_models(row: dict[str, str]) -> None:
    step = steps.step_at([8, 9], [float(row["ms_N8"]), float(row["ms_N9"])], 9)
    assert step.is_cliff
    assert step.ratio == pytest.approx(float(row["ratio"]), abs=0.005)


def test_article_draft_costs_twice_its_floor() -> None:
    cost = roofline.draft_cost(published.DRAFT_MS, published.TARGET_MS, 0.63e9, 7.62e9)
    assert cost.cost == pytest.approx(0.165, abs=5e-4)
    assert cost.floor == pytest.approx(0.083, abs=5e-4)
    assert cost.factor == pytest.approx(2.00, abs=5e-3)


@pytest.mark.parametrize(("k", "rate"), [(1, 72.6), (3, 72.1), (5, 56.3), (7, 47.7), (11, 30.1), (16, 27.0)])
def test_article_predictions(k: int, rate: float) -> None:
    cost = ledger.round_ms(k, COSTS[k + 1], published.DRAFT_MS)
    assert ledger.tokens_per_second(published.article_yields()[k], cost) == pytest.approx(rate, abs=0.5)
    # Counted as the article counts, the first token included, they come out to the last digit.
    assert ledger.tokens_per_second(published.article_tokens_per_round(k), cost) == pytest.approx(
        rate, abs=0.06
    )


def test_article_alpha_from_one_run() -> None:
    alpha = ledger.solve_alpha(197 / 64, 7)
    assert alpha == pytest.approx(0.692, abs=5e-4)
    assert ledger.expected_rate(ledger.tokens_per_round(alpha, 7), 7) == pytest.approx(0.2969, abs=5e-5)
    assert published.article_counts(7) == (64, 132)  # 132 accepted + 64 bonus + the first token = 197


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 11, 16])
def test_article_alpha_is_the_same_at_every_draft_length(k: int) -> None:
    assert ledger.solve_alpha(published.article_yields()[k], k) == pytest.approx(0.704, abs=0.015)


@pytest.mark.parametrize(("k", "ms_per_token", "speedup"), [(3, 10.58, 1.64), (4, 10.21, 1.70)])
def test_article_with_a_free_draft(k: int, ms_per_token: float, speedup: float) -> None:
    free = ledger.free_draft(CURVE[k + 1], published.article_tokens_per_round(k), published.PLAIN_MS)
    assert free.ms_per_token == pytest.approx(ms_per_token, abs=0.005)
    assert free.speedup == pytest.approx(speedup, abs=0.005)
    # Against T(1) of the sweep it reads 4.5 % higher: which T(1) matters.
    other = ledger.free_draft(CURVE[k + 1], published.article_tokens_per_round(k), CURVE[1])
    assert other.speedup / free.speedup == pytest.approx(1.045, abs=5e-4)


@pytest.mark.parametrize(
    ("model", "gb_s", "share"),
    [
        ("Qwen2.5-7B Q4_K_M", 274.2, 0.893),
        ("Qwen2.5-0.5B Q4_K_M", 172.3, 0.561),
        ("Qwen2.5-0.5B Q8_0", 220.0, 0.717),
    ],
)
def test_article_bandwidths(model: str, gb_s: float, share: float) -> None:
    found = roofline.bandwidth_gb_s(*_bytes_and_ms(model))
    assert found == pytest.approx(gb_s, abs=0.1)
    assert roofline.share_of_nominal(found, published.NOMINAL_GB_S) == pytest.approx(share, abs=5e-4)


def test_article_marginal_bandwidth_refutes_that_the_draft_is_bandwidth_bound() -> None:
    found = roofline.marginal_bandwidth(
        *_bytes_and_ms("Qwen2.5-0.5B Q4_K_M"), *_bytes_and_ms("Qwen2.5-0.5B Q8_0"), published.NOMINAL_GB_S
    )
    assert found.gb_s == pytest.approx(810, abs=2)
    assert found.share == pytest.approx(2.6, abs=0.05)
    assert not found.bandwidth_bound


def test_article_overhead_fitted_on_three_draft_lengths_predicts_five_others() -> None:
    account = ledger.Ledger.fit(
        CURVE,
        published.article_yields(),
        published.article_rates(),
        [1, 2, 3],
        flat=0.10,
        plain_ms=published.PLAIN_MS,
        plain_source="llama-cli",
    )
    assert [row.k for row in account.tested] == [4, 5, 7, 11, 16]
    assert account.closes(0.035)
    residuals = [row.residual for row in account.tested]
    assert min(residuals) == pytest.approx(-0.033, abs=5e-4)
    assert max(residuals) == pytest.approx(0.013, abs=5e-4)
    assert account.overhead_ms > 1.0
    assert account.draft_ms > published.DRAFT_MS
    # T(17) is not in the table and says so.
    assert [row.k for row in account.rows if row.verify.plateau] == [16]
    assert account.plain_source == "llama-cli"


def test_article_without_an_overhead_term_is_too_optimistic_everywhere() -> None:
    account = ledger.Ledger.from_terms(
        COSTS, published.article_yields(), published.article_rates(), draft_ms=published.DRAFT_MS
    )
    assert all(0.04 < row.residual < 0.14 for row in account.rows)
    assert not account.closes(0.10)


def test_article_ledger_with_a_false_verify_cost_does_not_close() -> None:
    false = CURVE | {8: CURVE[9]}
    account = ledger.Ledger.fit(
        false, published.article_yields(), published.article_rates(), [1, 2, 3], flat=0.10
    )
    assert not account.closes(0.10)
    assert account.worst.k == 7


def test_article_advice() -> None:
    advice = ledger.best_draft_length(
        CURVE,
        published.DRAFT_MS,
        yields=published.article_yields(),
        measured=published.article_rates(),
        plain_ms=published.PLAIN_MS,
        plain_source="llama-cli",
    )
    assert advice.best_k == 1
    assert advice.speculate
    assert advice.speedup == pytest.approx(1.16, abs=0.005)
    assert "k=2 sags (1.03x): N=3 is a dip: 4 tokens cost less (27.23 against 28.11 ms)" in advice.reason
    assert "57.60 without (llama-cli): 1.16x" in advice.reason
    assert [row.k for row in advice.table] == [1, 2, 3, 4, 5, 7, 11]
    notes = {row.k: row.note for row in advice.table}
    assert notes[7] == "8 is the last N before the cliff at 9 (1.76x)"
    assert notes[11] == "N=12 is behind the cliff at 9 (1.76x)"


def test_article_advice_from_fitted_terms_alone() -> None:
    yields = published.article_yields()
    account = ledger.Ledger.fit(CURVE, yields, published.article_rates(), [1, 2, 3], flat=0.10)
    advice = ledger.best_draft_length(
        CURVE,
        account.draft_ms,
        yields=yields,
        overhead_ms=account.overhead_ms,
        plain_ms=published.PLAIN_MS,
    )
    assert advice.best_k == 1
    assert advice.speedup == pytest.approx(1.16, abs=0.03)
    assert "k=2 sags" in advice.reason


def test_article_run_counted_round_by_round() -> None:
    rounds, accepted = published.article_counts(7)
    # How the 132 fell on the 64 rounds is not published; any split gives the same rate and length.
    split = [7 if i < accepted // 7 else accepted % 7 if i == accepted // 7 else 0 for i in range(rounds)]
    found = Acceptance.from_rounds([7] * rounds, split, [0] * rounds)
    assert found.rate == pytest.approx(0.2946, abs=5e-5)
    assert found.length == pytest.approx(1 + 7 * 0.2946, abs=5e-4)


@pytest.mark.parametrize(
    "row", published.table("leviathan_table1"), ids=lambda row: f"{row['alpha']}-{row['gamma']}"
)
def test_leviathan_table_1(row: dict[str, str]) -> None:
    alpha, k = float(row["alpha"]), int(row["gamma"])
    assert ledger.ideal_speedup(alpha, k) == pytest.approx(float(row["speed_x"]), abs=0.0051)
    assert ledger.operations_factor(alpha, k) == pytest.approx(float(row["operations_x"]), abs=0.0051)


def test_vulkan_steps_down_at_nine_sequences() -> None:
    rows = published.table("vulkan_rtx3090_llama8b_q4_0")
    found = steps.find_steps(
        [int(row["B"]) for row in rows], [float(row["T_TG_s_for_128_steps"]) for row in rows]
    )
    assert [step.n for step in found.cliffs] == [2]
    assert found.safe_draft_length == 0
    assert [step.n for step in found.drops] == [9]
    assert found.drops[0].ratio == pytest.approx(6.768 / 10.27)
    assert found.dips == (8,)
    assert found.plateaus[0] == (2, 6)


def test_cpu_sawtooth_has_period_three_and_the_other_build_none() -> None:
    teeth = steps.find_steps(*published.latency("cpu_llama13b_f16_sawtooth", "N", "tok_per_s_master"))
    assert teeth.sawtooth == 3
    assert [step.n for step in teeth.cliffs] == [4, 7, 10, 13]
    assert [step.n for step in teeth.drops] == [6, 9, 12, 15]
    assert teeth.dips == (5, 8, 11, 14)
    flat = steps.find_steps(*published.latency("cpu_llama13b_f16_sawtooth", "N", "tok_per_s_tinyblas"))
    assert (flat.sawtooth, flat.cliffs, flat.drops) == (None, (), ())
    assert flat.plateaus == ((1, 15),)


def test_cuda_upgrade_changes_six_to_eight_and_nothing_below() -> None:
    name = "cuda_v100_llama8b_q2_k_upgrade"
    n, before = published.latency(name, "ubatch", "tok_per_s_b10830")
    _, after = published.latency(name, "ubatch", "tok_per_s_eb808cfee")
    changes = steps.compare_curves(n, before, after)
    assert [change.n for change in changes] == [6, 7, 8]
    assert 1 / changes[-1].ratio == pytest.approx(1.50, abs=0.005)
    assert all(change.ratio < 1 for change in changes)


@pytest.mark.parametrize(
    "row",
    [row for row in published.table("sweeps_imp_mtp") if row["ms_per_verify"] and row["tok_per_s_r1"]],
    ids=lambda row: f"{row['source']}-{row['k']}",
)
def test_mtp_sweep_closes(row: dict[str, str]) -> None:
    k, tokens = int(row["k"]), float(row["emitted_per_verify"])
    runs = (float(row["tok_per_s_r1"]), float(row["tok_per_s_r2"]))
    rate = ledger.tokens_per_second(tokens, float(row["ms_per_verify"]))
    # The yield is printed with two decimals, the two runs differ by up to 6 %.
    assert rate == pytest.approx(sum(runs) / 2, rel=0.01)
    assert ledger.expected_rate(tokens, k) == pytest.approx(float(row["acceptance_pct"]) / 100, abs=0.003)


def test_a_mtp_ledger_closes_on_the_draft_length_it_did_not_see() -> None:
    rows = [
        row
        for row in published.table("sweeps_imp_mtp")
        if row["source"] == "kekzl/imp#1481" and row["ms_per_verify"]
    ]
    curve = {int(row["verify_rows"]): float(row["ms_per_verify"]) for row in rows}
    yields = {int(row["k"]): float(row["emitted_per_verify"]) for row in rows}
    rates = {int(row["k"]): (float(row["tok_per_s_r1"]) + float(row["tok_per_s_r2"])) / 2 for row in rows}
    plain = 1000 / 86.03
    account = ledger.Ledger.fit(curve, yields, rates, [1, 2], plain_ms=plain)
    # The verify time is the whole round here: no draft cost, no overhead are left.
    assert account.closes(0.01)
    assert account.overhead_ms == pytest.approx(0.0, abs=0.2)
    assert account.draft_ms == pytest.approx(0.0, abs=0.2)


@pytest.mark.parametrize("model", ["llama 1B F16", "llama 160m F16"])
def test_small_drafts_cost_more_than_their_share_of_the_parameters(model: str) -> None:
    rows = {
        row["model"]: row for row in published.table("draft_cost_small_models") if "8499" in row["source"]
    }
    draft, target = rows[model], rows["llama 7B F16"]
    cost = roofline.draft_cost(
        1000 / float(draft["tg_tok_per_s"]),
        1000 / float(target["tg_tok_per_s"]),
        float(draft["params_M"]),
        float(target["params_M"]),
    )
    assert cost.cost == pytest.approx(float(draft["published_c"]), abs=0.012)
    assert cost.factor > 1.7


def _bytes_and_ms(model: str) -> tuple[float, float]:
    row = next(row for row in published.table("draft_cost_small_models") if row["model"] == model)
    return float(row["size_MiB"]) * 2**20, 1000.0 / float(row["tg_tok_per_s"])
