"""A bad file is refused in one line before any runtime sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdnpu_policy.errors import SdnpuError
from sdnpu_policy.npu.model_file import check_external_data, check_static, read_model_file

MakeModel = Callable[..., Path]


def test_the_outline_of_a_model_is_read(quantized_conv: MakeModel) -> None:
    model = read_model_file(quantized_conv())
    assert [node.op_type for node in model.nodes].count("Conv") == 1
    assert check_static(model) == {"x": (1, 3, 8, 8)}
    assert (model.outputs[0].name, model.outputs[0].shape, model.outputs[0].element_type) == ("y", (1, 4, 8, 8), 1)
    assert model.quantized and model.floating and not model.contexts


def test_a_float_model_is_not_taken_for_a_quantized_one(float_conv: MakeModel) -> None:
    model = read_model_file(float_conv())
    assert model.floating and not model.quantized


def test_signed_weights_behind_unsigned_activations_are_counted(quantized_conv: MakeModel) -> None:
    assert read_model_file(quantized_conv("u.onnx")).signed_weights() == 0
    assert read_model_file(quantized_conv("s.onnx", signed_weights=True)).signed_weights() == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
        (b"# A page of text\nthat is no model\n", "not a whole ONNX model"),
        (b"\x08\x07", "holds no ONNX graph"),
        (b"\0" * 100, "not a whole ONNX model"),
    ],
)
def test_a_file_that_is_no_model_says_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(SdnpuError, match=said) as caught:
        read_model_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_model_is_refused(quantized_conv: MakeModel) -> None:
    path = quantized_conv()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SdnpuError, match=r"not a whole ONNX model .* compare its sha256"):
        read_model_file(path)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SdnpuError, match="no such model file"):
        read_model_file(tmp_path / "none.onnx")
    with pytest.raises(SdnpuError, match="cannot be read"):
        read_model_file(tmp_path)


def test_a_dynamic_dimension_is_named_with_the_command_that_fixes_it(quantized_conv: MakeModel) -> None:
    model = read_model_file(quantized_conv(batch="batch_size"))
    with pytest.raises(
        SdnpuError, match=r"input 'x' \[batch_size, 3, 8, 8\] .*--dim_param batch_size --dim_value 1"
    ):
        check_static(model)


def test_external_data_must_lie_beside_the_model(float_conv: MakeModel) -> None:
    path = float_conv(external="weights.bin")
    check_external_data(read_model_file(path))
    weights = path.parent / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(SdnpuError, match=r"weights.bin: has 428 bytes, float.onnx needs 432"):
        check_external_data(read_model_file(path))
    weights.unlink()
    with pytest.raises(SdnpuError, match=r"external data 'weights.bin' is missing"):
        check_external_data(read_model_file(path))


def test_external_data_outside_the_directory_is_refused(float_conv: MakeModel) -> None:
    path = float_conv(external="weights.bin")
    (path.parent.parent / "eights.bin").write_bytes(bytes(432))
    path.write_bytes(path.read_bytes().replace(b"weights.bin", b"../eights.b"))
    with pytest.raises(SdnpuError, match="outside the model's directory"):
        check_external_data(read_model_file(path))


def test_public_files_are_read(shared_data: Path) -> None:
    folder = shared_data / "onnx"
    with pytest.raises(SdnpuError, match=r"input 'input' \[batch_size, 3, 24, 24\] is dynamic"):
        check_static(read_model_file(folder / "conv_qdq_u8u8.onnx"))
    external = read_model_file(folder / "conv_qdq_external_ini.onnx")
    check_external_data(external)
    assert {t.location for t in external.initializers.values() if t.location} == {"conv_qdq_external_ini.bin"}
    compiled = read_model_file(folder / "qnn_multi_ctx_embed.onnx")
    assert [node.strings["ep_sdk_version"] for node in compiled.contexts] == [b"v2.22.0.240425235059_92863"] * 2


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_leads_to_anything_but_a_refusal(quantized_conv: MakeModel, data: st.DataObject) -> None:
    path = quantized_conv()
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        model = read_model_file(path)
        check_static(model)
        check_external_data(model)
    except SdnpuError:
        pass
