"""GraphQL to tools: SDL or the answer of an introspection in, drafts and outcomes out. Pure.

Each field of Query and Mutation becomes a tool. What is asked of it is chosen here, by depth and
cost, or written by a person for single fields; a caller may choose anew with each call.
"""

from registry.importers.graphql.marks import GraphQLOverlay, read_overlay
from registry.importers.graphql.read import GraphQLChoice, read

__all__ = ["GraphQLChoice", "GraphQLOverlay", "read", "read_overlay"]
