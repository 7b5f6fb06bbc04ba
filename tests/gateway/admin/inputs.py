"""A valid and an invalid input of every operation of the admin API, for all ways to call one.

NAME stands for a name of the operation and the way: each way changes an entry of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fixtures_gateway import pets

Json = dict[str, Any]
NOBODY = "00000000-0000-4000-8000-00000000beef"
LATER = "2100-01-01T00:00:00Z"
DENY = {"effect": "deny", "tools": ["x*"]}
SKILL = {"document": "---\nname: NAME\ndescription: About it.\n---\nDo it.\n"}
DOCUMENT = json.dumps(pets())
SOURCE = {"kind": "openapi", "name": "NAME", "document": DOCUMENT, "base_url": "https://p.example"}
TOOL = {"name": "NAME", "description": "d", "rest": "GET https://NAME.example/x"}
MISSING: Json = {"limit": 0}


@dataclass(frozen=True)
class Case:
    valid: Json | None  # None: no input is, without a server that this test lacks
    invalid: Json | None  # None: it takes nothing that could be wrong
    before: Sequence[tuple[str, Json]] = ()  # calls that make what it is about
    prepare: str = ""  # the entry that no operation makes: "session", "approval", "job", "person",
    # "login", "client" or "connection"


def on(entry: Mapping[str, Any], **more: Any) -> Json:
    return {**entry, **more}


SKILLS = ("importSkills", {"skills": [SKILL]})
RULE = ("putRule", {"rule": "NAME", "if_none_match": "*", **DENY})
TOOLSET = ("putToolset", {"toolset": "NAME", "if_none_match": "*"})
AGENT = ("putAgent", {"agent": "NAME"})
KEY = ("createKey", {"name": "NAME"})
USER = ("createUser", {"name": "NAME"})
MADE = ("createTool", TOOL)
IMPORTED = ("importSource", {"body": SOURCE})
NO_SKILL, NO_TOOL, NO_SOURCE = {"skill": "none"}, {"tool": "none"}, {"source": "none"}

CASES: Mapping[str, Case] = {
    "getStatus": Case({}, None),
    "listToolsets": Case({}, MISSING),
    "getToolset": Case({"toolset": "some"}, {"toolset": "none"}),
    "putToolset": Case(
        {"toolset": "NAME", "if_none_match": "*", "include": ["get*"]},
        {"toolset": "NAME", "if_none_match": "*", "include": "get*"},
    ),
    "deleteToolset": Case(
        {"toolset": "NAME", "if_match": "*"}, {"toolset": "some", "if_match": "*"}, [TOOLSET]
    ),
    "listToolsetTools": Case({"toolset": "some"}, {"toolset": "none"}),
    "listToolsetClients": Case({"toolset": "some"}, {"toolset": "none"}),
    "previewToolset": Case({"toolset": {"include": ["get*"]}}, {"toolset": {"include": 1}}),
    "exportToolsets": Case({}, None),
    "restartGateway": Case({}, None),
    "describe": Case({}, None),
    "listErasures": Case({}, MISSING),
    "getErasure": Case(None, {"erasure": NOBODY}),
    "erasePerson": Case(
        {"person": "NAME", "confirm": "NAME"}, {"person": "NAME", "confirm": "other"}
    ),
    # sources
    "listSources": Case({}, MISSING),
    "listImportFailures": Case({}, MISSING),
    "importSource": Case({"body": SOURCE}, {"body": on(SOURCE, base_url="none")}),
    "previewImport": Case({"body": SOURCE}, {"body": on(SOURCE, base_url="none")}),
    "getSource": Case({"source": "pets"}, NO_SOURCE),
    "deleteSource": Case({"source": "NAME"}, NO_SOURCE, [IMPORTED]),
    "uploadDocument": Case(
        {"source": "NAME", "document": DOCUMENT}, {"source": "NAME", "document": 1}, [IMPORTED]
    ),
    "refreshSource": Case({"source": "pets"}, NO_SOURCE),
    "compareSource": Case({"source": "pets"}, NO_SOURCE),
    "listVersions": Case({"source": "pets"}, NO_SOURCE),
    "rollBack": Case(
        {"source": "NAME", "to": 1},
        {"source": "NAME", "to": 0},
        [
            IMPORTED,
            ("uploadDocument", {"source": "NAME", "document": DOCUMENT.replace("List pets", "L")}),
        ],
    ),
    # servers of registries: tests/gateway/cli/test_registry.py has one
    "searchCatalog": Case(None, MISSING),
    "planServer": Case(None, {"name": "none"}),
    "getCatalogEntry": Case(None, {"server": "a/b"}),
    "addServer": Case(None, {"name": "a/b", "source": "NAME", "sha256": "none"}),
    "listOutdated": Case({}, MISSING),
    "planUpdate": Case(None, NO_SOURCE),
    "updateServer": Case(None, {"source": "none", "sha256": "0" * 64}),
    # secrets
    "listSecrets": Case({}, MISSING),
    "putSecret": Case(
        {"source": "pets", "scheme": "NAME", "force": True, "value": "s"},
        {"source": "pets", "scheme": "NAME", "value": 1},
    ),
    "deleteSecret": Case(
        {"source": "pets", "scheme": "NAME"},
        {"source": "pets", "scheme": "none"},
        [("putSecret", {"source": "pets", "scheme": "NAME", "force": True, "value": "s"})],
    ),
    "rotateSecrets": Case({}, None),
    # tools
    "listTools": Case({"source": "pets"}, MISSING),
    "getTool": Case({"tool": "getPet"}, NO_TOOL),
    "listCosts": Case({"source": "pets"}, {"profile": "none"}),
    "showDefinitions": Case({"tool": "getPet"}, NO_TOOL),
    "describeTool": Case(
        {"tool": "NAME", "text": "t"}, {"tool": "NAME", "text": " "}, [MADE]
    ),
    "resetDescription": Case({"tool": "getPet"}, NO_TOOL),
    "changeMetadata": Case(
        {"tool": "NAME", "domain": "d"}, {"tool": "NAME", "tier": "none"}, [MADE]
    ),
    "disableTool": Case({"tool": "NAME"}, NO_TOOL, [MADE]),
    "enableTool": Case({"tool": "NAME"}, NO_TOOL, [MADE, ("disableTool", {"tool": "NAME"})]),
    "acceptTool": Case(None, {"tool": "getPet", "if_match": "*"}),
    "createTool": Case(TOOL, on(TOOL, description=1)),
    "createTools": Case({"tools": [TOOL]}, {"tools": [on(TOOL, rest=1)]}),
    "editTool": Case({"tool": "NAME", "title": "t"}, {"tool": "NAME", "title": 1}, [MADE]),
    "deleteTool": Case({"tool": "NAME"}, NO_TOOL, [MADE]),
    # search and embeddings
    "explainSearch": Case(
        {"query": "pet", "mode": "hybrid", "source": "pets"}, {"query": "x", "limit": 0}
    ),
    "searchTools": Case({"query": "pet", "words": True}, {"query": ""}),
    "evaluateSearch": Case(
        {"requests": [{"query": "pet", "gold": ["getPet"]}]}, {"requests": [{"query": ""}]}
    ),
    "listUsedRequests": Case({}, MISSING),
    "getEmbeddings": Case({}, None),
    "refreshEmbeddings": Case({"tools": ["getPet"]}, {"tools": ["none"]}),
    "retryEmbeddings": Case({}, {"tools": ["none"]}),
    "backfillEmbeddings": Case({}, None),
    # skills and agents
    "listSkills": Case({}, MISSING),
    "importSkills": Case({"skills": [SKILL]}, {"skills": []}),
    "generateSkills": Case({"source": "tagged", "dry_run": True}, NO_SOURCE),
    "getSkill": Case({"skill": "NAME"}, NO_SKILL, [SKILLS]),
    "deleteSkill": Case({"skill": "NAME"}, NO_SKILL, [SKILLS]),
    "exportSkill": Case({"skill": "NAME"}, NO_SKILL, [SKILLS]),
    "linkTools": Case(
        {"skill": "NAME", "tools": ["getPet"]}, {"skill": "NAME", "tools": []}, [SKILLS]
    ),
    "unlinkTools": Case(
        {"skill": "NAME", "tool": "getPet"},
        {"skill": "NAME", "tool": "none"},
        [SKILLS, ("linkTools", {"skill": "NAME", "tools": ["getPet"]})],
    ),
    "dependSkill": Case(
        {"skill": "NAME", "dependency": "base", "required": True},
        {"skill": "NAME", "dependency": "none", "required": True},
        [SKILLS],
    ),
    "undependSkill": Case(
        {"skill": "NAME", "dependency": "base"},
        {"skill": "NAME", "dependency": "none"},
        [SKILLS, ("dependSkill", {"skill": "NAME", "dependency": "base", "required": True})],
    ),
    "listSkillVersions": Case({"skill": "NAME"}, NO_SKILL, [SKILLS]),
    "getSkillVersion": Case(
        {"skill": "NAME", "version": "1"}, {"skill": "none", "version": "1"}, [SKILLS]
    ),
    "rollBackSkill": Case({"skill": "NAME", "to": 1}, {"skill": "NAME", "to": 0}, [SKILLS]),
    "listAgents": Case({}, MISSING),
    "getAgent": Case({"agent": "NAME"}, {"agent": "none"}, [AGENT]),
    "putAgent": Case(
        {"agent": "NAME", "temperature": 0.25}, {"agent": "NAME", "temperature": 0.123}
    ),
    "deleteAgent": Case({"agent": "NAME"}, {"agent": "none"}, [AGENT]),
    "grantSkills": Case(
        {"agent": "NAME", "skills": ["base"]}, {"agent": "NAME", "skills": ["none"]}, [AGENT]
    ),
    "revokeSkills": Case(
        {"agent": "NAME", "skill": "base"},
        {"agent": "NAME", "skill": "none"},
        [AGENT, ("grantSkills", {"agent": "NAME", "skills": ["base"]})],
    ),
    # keys
    "listKeys": Case({}, MISSING),
    "createKey": Case({"name": "NAME"}, {"name": "key ü"}),
    "getKey": Case({"key": "KEY"}, {"key": "none"}, [KEY]),
    "rotateKey": Case({"key": "KEY", "overlap_s": 60}, {"key": "KEY", "overlap_s": -1}, [KEY]),
    "revokeKey": Case({"key": "KEY"}, {"key": "none"}, [KEY]),
    "listRevocations": Case({}, MISSING),
    "revokeTokens": Case({"expires": LATER, "jti": "NAME"}, {"expires": "soon", "jti": "NAME"}),
    "getRevocation": Case({"revocation": "REVOCATION"}, {"revocation": NOBODY}, [
        ("revokeTokens", {"expires": LATER, "jti": "NAME"})
    ]),
    "deleteRevocation": Case({"revocation": "REVOCATION"}, {"revocation": NOBODY}, [
        ("revokeTokens", {"expires": LATER, "jti": "NAME"})
    ]),
    # people who log in, and their connections
    "listUsers": Case({}, MISSING),
    "getUser": Case({"user": "NAME"}, {"user": "none"}, [USER]),
    "createUser": Case({"name": "NAME"}, {"name": "user ü"}),
    "inviteUser": Case({"user": "NAME"}, {"user": "none"}, [USER]),
    "setUserRoles": Case(
        {"user": "NAME", "roles": ["staff"]}, {"user": "none", "roles": []}, [USER]
    ),
    "disableUser": Case({"user": "NAME"}, {"user": "none"}, [USER]),
    "enableUser": Case({"user": "NAME"}, {"user": "none"}, [USER]),
    "resetUserTotp": Case({"user": "NAME"}, {"user": "none"}, [USER]),
    "deleteUser": Case({"user": "NAME"}, {"user": "none"}, [USER]),
    "listPeople": Case({}, MISSING),
    "getPerson": Case({"person": "ID"}, {"person": "none"}, prepare="person"),
    "disablePerson": Case({"person": "ID"}, {"person": "none"}, prepare="person"),
    "enablePerson": Case({"person": "ID"}, {"person": "none"}, prepare="person"),
    "listLogins": Case({}, MISSING),
    "getLogin": Case({"login": "ID"}, {"login": "none"}, prepare="login"),
    "endLogin": Case({"login": "ID"}, {"login": "none"}, prepare="login"),
    "listClients": Case({}, MISSING),
    "getClient": Case({"client": "ID"}, {"client": "none"}, prepare="client"),
    "deleteClient": Case({"client": "ID"}, {"client": "none"}, prepare="client"),
    "listConnections": Case({"source": "pets"}, MISSING),
    "getConnection": Case({"connection": "ID"}, {"connection": "none"}, prepare="connection"),
    "shareConnection": Case(
        {"connection": "ID", "roles": []},
        {"connection": "none", "roles": []},
        prepare="connection",
    ),
    "deleteConnection": Case({"connection": "ID"}, {"connection": "none"}, prepare="connection"),
    # rules and approvals
    "listRules": Case({}, MISSING),
    "getRule": Case({"rule": "NAME"}, {"rule": "none"}, [RULE]),
    "putRule": Case(
        {"rule": "NAME", "if_none_match": "*", **DENY}, {"rule": "NAME", **DENY}
    ),
    "deleteRule": Case(
        {"rule": "NAME", "if_match": "*"}, {"rule": "none", "if_match": "*"}, [RULE]
    ),
    "explain": Case({"tool": "getPet"}, NO_TOOL),
    "matchTools": Case({"tools": ["list*"]}, {"when": "1 +"}),
    "tryRule": Case({"rule": DENY}, {"rule": {"effect": "deny", "when": "1 +"}}),
    "listApprovals": Case({}, MISSING),
    "getApproval": Case({"approval": "ID"}, {"approval": NOBODY}, prepare="approval"),
    "decide": Case(
        {"approval": "ID", "approve": True}, {"approval": "ID", "approve": 1}, prepare="approval"
    ),
    # sessions, jobs, audit
    "listSessions": Case({"principal": "none"}, MISSING),
    "getSession": Case({"session": "ID"}, {"session": "none"}, prepare="session"),
    "endSession": Case({"session": "ID"}, {"session": "none"}, prepare="session"),
    "listJobs": Case({"state": "running"}, MISSING),
    "getJob": Case({"job": "ID"}, {"job": NOBODY}, prepare="job"),
    "cancelJob": Case({"job": "ID"}, {"job": NOBODY}, prepare="job"),
    "removeEndedJobs": Case({}, None),
    "searchAudit": Case({"principal": "none"}, {"limit": 0}),
    "sumCosts": Case({"by": "caller,day", "since": LATER, "until": LATER}, {"by": "none"}),
    "sumCalls": Case({"since": LATER}, {"since": "soon"}),
    "reportLegacyPayloads": Case({"since": LATER}, {"since": "soon"}),
    "verifyAudit": Case({}, None),
}  # fmt: skip
