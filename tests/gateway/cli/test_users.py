"""`toolgate users`, `people` and `logins`, in their own process."""

import base64

from tests.gateway.cli.conftest import Toolgate

LOGIN = {
    "TOOLGATE_SERVER__PUBLIC_URL": "https://gw.example",
    "TOOLGATE_SERVER__ALLOWED_HOSTS": '["gw.example"]',
    "TOOLGATE_AUTH__MODE": "jwt",
    "TOOLGATE_SECRETS__KEY": base64.b64encode(bytes(32)).decode(),
    "TOOLGATE_LOGIN__ENABLED": "true",
    "TOOLGATE_LOGIN__USERS": "true",
}


def test_a_user_is_added_and_invited(toolgate: Toolgate) -> None:
    migrated = toolgate("migrate", **LOGIN)
    assert migrated.code == 0, migrated.err
    added = toolgate("users", "add", "ann", "--role", "staff", **LOGIN)
    assert added.out.startswith("https://gw.example/login/invitation?ticket="), added.err
    again = toolgate("users", "invite", "ann", **LOGIN)
    assert again.out != added.out
    toolgate("users", "roles", "ann", "clerk", "staff", **LOGIN)
    (user,) = toolgate("users", "list", "--json", **LOGIN).json
    assert (user["name"], user["roles"]) == ("ann", ["clerk", "staff"])
    assert toolgate("users", "disable", "ann", **LOGIN).out == "Disabled ann.\n"
    assert toolgate("users", "enable", "ann", **LOGIN).out == "Enabled ann.\n"
    assert toolgate("users", "roles", "ann", **LOGIN).code == 0
    assert toolgate("users", "show", "ann", "--json", **LOGIN).json["roles"] == []
    assert toolgate("people", "list", "--json", **LOGIN).json == []
    assert toolgate("logins", "list", "--json", **LOGIN).json == []
    assert toolgate("clients", "list", "--json", **LOGIN).json == []
    assert toolgate("users", "remove", "ann", "--yes", **LOGIN).out == "Removed ann.\n"
    assert toolgate("users", "show", "ann", **LOGIN).code == 1


def test_a_command_names_the_setting_that_is_off(toolgate: Toolgate) -> None:
    refused = toolgate("users", "add", "ann", **{**LOGIN, "TOOLGATE_LOGIN__USERS": "false"})
    assert refused.code == 2
    assert "login." in refused.err
    for group in ("people", "logins"):
        refused = toolgate(group, "list")
        assert (refused.code, "login.enabled: true" in refused.err) == (2, True)
