"""Each state has a glyph of its own, in UTF-8 and in ASCII."""

from __future__ import annotations

from gpumon.findings import Finding, FindingKind, Severity
from gpumon.text.charset import substitute
from gpumon.ui.view.gpu_text import STATE_SIGNS, state_field


def test_every_state_has_a_sign_of_its_own_which_the_help_explains() -> None:
    signs = [sign for sign, _ in STATE_SIGNS]
    assert len(set(signs)) == len(signs)
    plain = [substitute(sign) for sign in signs]
    assert len(set(plain)) == len(plain), "also where only ASCII is shown"
    for kind in FindingKind:
        for severity in Severity:
            state = Finding(kind, "GPU-0", severity, "it is so", "so", "so")
            assert state_field(state, 10)[0][0] in signs
    idle, full, asleep = (
        state_field(Finding(kind, "GPU-0", Severity.NOTE, "", "", ""), 2)[0][0]
        for kind in (FindingKind.IDLE, FindingKind.FULL, FindingKind.ASLEEP)
    )
    assert (idle, full, asleep) == ("◐", "■", "◌")
