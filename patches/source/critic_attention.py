"""Fix for ATT109: let verl's loader of value models use the attention of the critic's configuration."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_sources, paths_of
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.vllm.trainer_attention import fixed_attention
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText

CODE = "ATT109"
_CONFIG = "model_config"  # the loader's parameter


@fix(
    "critic-attention",
    repairs=CODE,
    safety="safe",
    needed="verl 0.6 to 0.9, whose load_valuehead_model names flash_attention_2 itself",
    restart="running Ray workers, which keep the old code",
)
def critic_attention(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Load the critic with the attention that its configuration names.

    The configuration holds what `critic.model.override_config.attn_implementation` names, or else verl's
    default, so a critic without that setting is loaded as before.
    """

    def repaired(source: SourceText) -> bytes:
        edits = [
            Edit(
                source.start(node),
                source.end(node),
                f'getattr({_CONFIG}, "_attn_implementation", None) or "{name}"',
            )
            for name, node in fixed_attention(source.tree)
        ]
        if not edits:
            raise CannotEdit(f"{source.path}: the file has changed since it was read")
        return source.edited(edits, marker.comment(CODE))

    return edited_sources(paths_of(finding), sources, repaired)
