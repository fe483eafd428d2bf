"""Nothing that is not in the tables reaches a runtime."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.options import OPTIONS, PERFORMANCE_MODES, check_options


def test_defaults_are_one_thread_without_spinning() -> None:
    cpu = check_options("cpu", {})
    assert (cpu["intra_op_num_threads"], cpu["inter_op_num_threads"]) == ("1", "1")
    assert cpu["session.intra_op.allow_spinning"] == "0"
    assert check_options("openvino", {})["INFERENCE_NUM_THREADS"] == "1"


def test_qnn_always_has_a_soc_its_architecture_and_the_mode_that_compiles_16_bit_activations_rightly() -> None:
    qnn = check_options("qnn", {})
    assert (qnn["soc_model"], qnn["htp_arch"]) == ("60", "73")
    assert qnn["htp_graph_finalization_optimization_mode"] == "1"


def test_the_architecture_follows_a_known_soc() -> None:
    assert check_options("qnn", {"soc_model": 57})["htp_arch"] == "75"


def test_a_soc_that_is_not_known_needs_its_architecture() -> None:
    with pytest.raises(SdnpuError, match="htp_arch is needed with soc_model='77'"):
        check_options("qnn", {"soc_model": 77})
    assert check_options("qnn", {"soc_model": 77, "htp_arch": 73})["htp_arch"] == "73"


def test_an_architecture_of_another_soc_is_refused_with_both_named() -> None:
    with pytest.raises(SdnpuError, match="soc_model='69' has htp_arch 79, not '73'"):
        check_options("qnn", {"soc_model": "69", "htp_arch": "73"})


@pytest.mark.parametrize(
    ("provider", "wrong", "right"),
    [
        ("qnn", "htp_perf_mode", "qnn.htp_perf_mode"),
        ("qnn", "htp_performence_mode", "htp_performance_mode"),
        ("qnn", "HTP_ARCH", "htp_arch"),
        ("cpu", "intra_op_threads", "intra_op_num_threads"),
        ("openvino", "inference_num_thread", "INFERENCE_NUM_THREADS"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_right_one(provider: str, wrong: str, right: str) -> None:
    with pytest.raises(SdnpuError, match=f"no option '{wrong}'; did you mean '{right}'"):
        check_options(provider, {wrong: "1"})


def test_a_name_like_nothing_is_answered_with_all_names() -> None:
    with pytest.raises(SdnpuError, match="it has intra_op_num_threads, "):
        check_options("cpu", {"zzz": 1})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("htp_performance_mode", "turbo", "burst, balanced"),
        ("backend_type", "cpu", "htp"),
        ("device_id", 1, "0"),
        ("htp_graph_finalization_optimization_mode", 4, "0, 1, 2, 3"),
        ("vtcm_mb", -1, "an integer from 0 to 64"),
        ("soc_model", "QCS8550", "an integer from 1 to 999"),
        ("htp_arch", "V73", "68, 69, 73"),
        ("profiling_file_path", "/no/such/directory/p.csv", "existing directory"),
    ],
)
def test_a_wrong_value_is_answered_with_the_allowed_ones(name: str, value: str | int, allowed: str) -> None:
    with pytest.raises(SdnpuError, match=f"option {name}=.*use .*{allowed}"):
        check_options("qnn", {name: value})


def test_run_options_that_would_end_the_process_do_not_get_through() -> None:
    with pytest.raises(SdnpuError, match=r"qnn\.rpc_control_latency='abc'"):
        check_options("qnn", {"qnn.rpc_control_latency": "abc"})
    with pytest.raises(SdnpuError, match=r"qnn\.htp_perf_mode='warp'"):
        check_options("qnn", {"qnn.htp_perf_mode": "warp"})
    with pytest.raises(SdnpuError, match=r"no option 'ep.dynamic.qnn_htp_performance_mode'"):
        check_options("qnn", {"ep.dynamic.qnn_htp_performance_mode": "burst"})


def test_profiling_needs_a_file_to_write_to(tmp_path: object) -> None:
    with pytest.raises(SdnpuError, match="profiling_level='basic' needs profiling_file_path"):
        check_options("qnn", {"profiling_level": "basic"})
    check_options("qnn", {"profiling_level": "basic", "profiling_file_path": f"{tmp_path}/profile.csv"})


def test_numbers_and_truths_of_yaml_become_text() -> None:
    assert check_options("qnn", {"vtcm_mb": 8})["vtcm_mb"] == "8"
    assert check_options("qnn", {"vtcm_mb": 8.0})["vtcm_mb"] == "8"
    assert check_options("qnn", {"enable_htp_fp16_precision": True})["enable_htp_fp16_precision"] == "1"


def test_a_provider_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(SdnpuError, match="'npu' is not known; use one of cpu, qnn, openvino"):
        check_options("npu", {})


@given(
    provider=st.sampled_from(sorted(OPTIONS)),
    name=st.one_of(
        st.text(max_size=20), st.sampled_from(sorted({n for table in OPTIONS.values() for n in table}))
    ),
    value=st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.sampled_from(PERFORMANCE_MODES)),
)
def test_whatever_gets_through_is_in_the_table(provider: str, name: str, value: str | int | float) -> None:
    try:
        checked = check_options(provider, {name: value})
    except SdnpuError as error:
        assert len(str(error).splitlines()) == 1
        return
    table = OPTIONS[provider]
    assert all(table[key].accepts(text) for key, text in checked.items())
    assert all(text.isprintable() for text in checked.values())
