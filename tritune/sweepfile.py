"""sweepfile: parsed YAML -> `SweepFile`, by models that check a sweep file and document it.

The JSON Schema for editors is generated from these models, so the two cannot disagree.
Rules across keys (names in constraints, doubled problems) are `spec`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from tritune import axisvalues, expression
from tritune.axisvalues import Expansion, Slip
from tritune.device.targets import TARGETS
from tritune.model import LAUNCH_OPTIONS, Value
from tritune.yamlscalars import got

KNOWN_TARGETS = (
    *(target.name for target in TARGETS),
    *sorted({f"{target.backend}:{target.arch}" for target in TARGETS}),
)
Values = tuple[Value, ...]

_REFERENCE = re.compile(r"[^:\s][^:]*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _refuse(slips: list[Slip]) -> PydanticCustomError:
    return PydanticCustomError("slips", "see its slips", {"slips": tuple(slips)})


def _axes(raw: Any, expand: Callable[[str, Any], Expansion]) -> dict[str, Values]:
    if not isinstance(raw, dict):
        what = f"expected a mapping, got {got(raw)}"
        raise _refuse([Slip((), what, "write one `axis: values` a line")])
    slips: list[Slip] = []
    values: dict[str, Values] = {}
    for name, item in raw.items():
        if not name.isidentifier():
            what = f"expected a name, got `{name}`"
            slips.append(Slip((name,), what, "use letters, digits and _", at_key=True))
        made = expand(name, item)
        slips += [Slip((name, *slip.loc), slip.what, slip.hint, slip.at_key) for slip in made.slips]
        values[name] = made.values
    if slips:
        raise _refuse(slips)
    return values


def _space(raw: Any) -> dict[str, Values]:
    return _axes(raw, axisvalues.tunable)


def _shape(raw: Any) -> dict[str, Values]:
    if raw == {}:
        raise _refuse([Slip((), "expected at least one axis", "write {M: 4096, dtype: float16}")])
    return _axes(raw, axisvalues.problem_axis)


def _reference(text: str) -> str:
    if _REFERENCE.fullmatch(text):
        return text
    what = f"expected module:name, got `{text}`"
    raise _refuse(
        [Slip((), what, "write ../kernels/matmul.py:matmul_kernel or package.module:name")]
    )


def _constraint(text: str) -> str:
    try:
        expression.names(text)
    except expression.ConstraintError as error:
        functions = ", ".join(sorted(expression.FUNCTIONS))
        hint = error.hint or f"compare numbers and axes; functions: {functions}"
        raise _refuse([Slip((), f"`{text}`: {error}", hint)]) from None
    return text


_ONE = {"type": ["boolean", "number", "string"]}
_ONE_OR_NULL = {"type": ["boolean", "null", "number", "string"]}
_INTEGER = {"type": "integer"}


def _form(name: str, ends: dict[str, Any], description: str) -> dict[str, Any]:
    ends = {"type": "array", "items": _INTEGER, "minItems": 2, **ends}
    return {
        "type": "object",
        "description": description,
        "properties": {name: ends | {"description": description}},
        "required": [name],
        "additionalProperties": False,
    }


def _values_schema(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "anyOf": [
            one,
            {"type": "array", "items": one, "minItems": 1},
            _form(
                "range",
                {"maxItems": 3},
                "[first, last] or [first, last, step], both ends included.",
            ),
            _form("pow2", {"maxItems": 2}, "Powers of two [first, last], both ends included."),
        ]
    }


def _described_option(name: str) -> dict[str, Any]:
    return _values_schema({"type": ["integer", "null"], "minimum": 0}) | {
        "description": f"The launch option {name}."
    }


_SPACE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: _described_option(name) for name in sorted(LAUNCH_OPTIONS)},
    "additionalProperties": _values_schema(_ONE_OR_NULL),
}
_SHAPE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": _values_schema(_ONE),
}

Space = Annotated[dict[str, Any], PlainValidator(_space), WithJsonSchema(_SPACE_SCHEMA)]
Shape = Annotated[dict[str, Any], PlainValidator(_shape), WithJsonSchema(_SHAPE_SCHEMA)]
Reference = Annotated[str, AfterValidator(_reference)]
ConstraintText = Annotated[str, AfterValidator(_constraint)]
TargetName = Annotated[str, WithJsonSchema({"enum": list(KNOWN_TARGETS)})]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SectionPart(_Part):
    """What one backend or one target changes."""

    space: Space = Field(
        default_factory=dict,
        description="Axes that replace those of the space, or are added to it.",
    )
    constraints: list[ConstraintText] = Field(
        default_factory=list, description="Constraints that hold here besides the file's."
    )


class TimingPart(_Part):
    """How the sweep measures."""

    cache: Literal["cold", "hot"] = Field(
        default="cold",
        description="cold: the L2 cache is flushed before each sample; hot: it is not.",
    )
    screen_samples: int = Field(
        default=3, ge=1, description="Samples of each config before the finals."
    )
    final_rounds: int = Field(
        default=30, ge=3, description="Most interleaved rounds of the finals."
    )
    compile_limit_s: float = Field(
        default=120.0, gt=0, allow_inf_nan=False, description="Seconds one config may compile."
    )


class SweepFile(_Part):
    """Which configs of a Triton kernel are tried on which problems."""

    model_config = ConfigDict(
        json_schema_extra={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "anyOf": [{"required": ["kernel"]}, {"required": ["problem"]}],
            "patternProperties": {"^x-": {"description": "Anything; a place for YAML anchors."}},
        }
    )

    kernel: Reference = Field(
        default="",
        description="The kernel to tune: ../kernels/matmul.py:matmul_kernel, relative to this file,"
        " or package.module:name.",
    )
    problem: Reference = Field(
        default="",
        description="The problem function, module:function, where the kernel's module has none;"
        " without `kernel`, every tunable kernel it launches is tuned.",
    )
    targets: list[TargetName] = Field(
        default_factory=list, description="The products it ships on; the first is the default."
    )
    space: Space = Field(
        default_factory=dict,
        description="Tunable -> its values; without it the kernel's own configs are tried.",
    )
    cuda: SectionPart = Field(
        default_factory=SectionPart, description="What changes on NVIDIA's GPUs."
    )
    hip: SectionPart = Field(default_factory=SectionPart, description="What changes on AMD's GPUs.")
    per_target: Annotated[
        dict[str, SectionPart],
        Field(json_schema_extra={"propertyNames": {"enum": [*KNOWN_TARGETS]}}),
    ] = Field(
        default_factory=dict,
        description="What changes on one product (H200) or one architecture (cuda:90).",
    )
    constraints: list[ConstraintText] = Field(
        default_factory=list,
        description="What a config must fulfil: comparisons over axes of the space and of the"
        f" problem, and the target's {', '.join(expression.FACTS)}.",
    )
    shapes: list[Shape] = Field(
        min_length=1,
        description="The problems to tune for; a row with several values is their product.",
    )
    smoke: list[Shape] = Field(
        default_factory=list, description="Small problems for Triton's interpreter."
    )
    timing: TimingPart = Field(default_factory=TimingPart, description="The protocol of measuring.")


def schema() -> str:
    """The JSON Schema of a sweep file, as it is shipped for editors."""
    made = SweepFile.model_json_schema()
    made["title"] = "tritune sweep file"
    return json.dumps(made, indent=1, sort_keys=True) + "\n"
