"""Settings of hooks that contradict themselves, and what is shown of them."""

from pathlib import Path

import pytest

from config.load import SettingsError, load, mask_secrets

SECRET = "whsec_" + "YQ" * 16 + "=="


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        ("{at: before}", "expected one of use"),
        (
            f"{{at: before, use: 'a:b', url: 'https://a', secret: '{SECRET}'}}",
            "expected one of use",
        ),
        ("{at: before, url: 'https://a'}", "expected a secret beside it"),
        ("{at: before, use: 'a:b', when: 'value == 1'}", "there is no variable 'value'"),
        ("{at: list, use: 'a:b'}", "expected changes: true beside list"),
        ("{at: audit, use: 'a:b', tools: [a]}", "tools: expected none at audit"),
        ("{at: between, use: 'a:b'}", "at: expected"),
        ("{at: before, use: 'a b'}", "use: expected module:function"),
    ],
)
def test_a_hook_that_cannot_be_is_refused(tmp_path: Path, hook: str, text: str) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"hooks: {{h: {hook}}}\n")
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    assert text in str(caught.value.problems[0])


def test_secrets_of_hooks_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"hooks: {{h: {{at: before, url: 'https://a', secret: '{SECRET}'}}}}\n")
    assert SECRET not in str(mask_secrets(load(str(file), {})))
