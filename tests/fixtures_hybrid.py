"""Descriptions of hybrid services as light-hybrid-4j has them."""

from typing import Any

import yaml

from config.yaml_document import Loader

RULE = "lightapi.net/rule"

# The form of a real spec.yaml: shared schemas, one scope, handlers named for people.
SPEC = """
host: lightapi.net
service: rule
action:
  - name: createRule
    version: 0.1.0
    handler: CreateRule
    scope: portal.w
    request:
      schema: {$ref: '#/schemas/createRuleRequest'}
      example: {ruleId: r1}
    response:
      schema: {$ref: '#/schemas/createRuleResponse'}
  - name: updateRule
    version: 0.1.0
    handler: UpdateRule
    scope: portal.w
    request:
      schema: {$ref: '#/schemas/updateRuleRequest'}
  - name: deleteRule
    version: 0.1.0
    handler: DeleteRule
    scope: portal.w
    skipAuth: false
    request:
      schema: {$ref: '#/schemas/deleteRuleRequest'}
schemas:
  createRuleRequest:
    title: Service to create a rule
    type: object
    required: [hostId, ruleId, ruleName, ruleVersion, ruleType, ruleOwner, common, conditions]
    properties: &properties
      hostId: {type: string}
      ruleId: {type: string}
      ruleName: {type: string}
      ruleVersion: {type: string}
      ruleType: {type: string}
      ruleOwner: {type: string}
      common: {type: string, enum: [Y, N]}
      conditions: {type: array, items: {type: object}}
  createRuleResponse:
    type: object
  updateRuleRequest:
    description: Service to update a rule
    type: object
    required: [ruleId, ruleName, ruleVersion, ruleType, ruleOwner, common, conditions]
    properties: *properties
  deleteRuleRequest:
    type: object
    required: [hostId, ruleId]
    properties:
      hostId: {type: string}
      ruleId: {type: string}
"""


def rules() -> dict[str, Any]:
    """`SPEC`, parsed, the test's own."""
    document: dict[str, Any] = yaml.load(SPEC, Loader=Loader)
    return document


def describe_actions(*actions: dict[str, Any], **schemas: Any) -> dict[str, Any]:
    """A spec.yaml with these actions."""
    return {"host": "h.net", "service": "s", "action": list(actions), "schemas": schemas}


def action(name: str = "do", version: str | None = "1", **members: Any) -> dict[str, Any]:
    return {"name": name, "version": version, **members}


def wanting(schema: Any, name: str = "do", **members: Any) -> dict[str, Any]:
    """An action whose request schema is `schema`; text: the name of a shared one."""
    reference = {"$ref": f"#/schemas/{schema}"} if isinstance(schema, str) else schema
    return action(name, request={"schema": reference}, **members)
