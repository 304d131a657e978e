"""What the bodies of recording modules saw: conformance/LANGUAGE.md, section 3, ops `record` and `record_parameters`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Recorder:
    """One per rank and case. A later record under the same key replaces the earlier one."""

    dtypes: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, list[tuple[str, list[int]]]] = field(default_factory=dict)
