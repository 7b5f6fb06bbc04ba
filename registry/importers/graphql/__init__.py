"""GraphQL to tools: SDL or an introspection result in, drafts and outcomes out. Pure.

Each field of Query and Mutation becomes a tool. Its selection set is chosen here, by depth and
cost, or written by a person for single fields; a caller may override it in each call.
"""

from registry.importers.graphql.import_pipeline import GraphQLChoice, read
from registry.importers.graphql.overlays import GraphQLOverlay, read_overlay

__all__ = ["GraphQLChoice", "GraphQLOverlay", "read", "read_overlay"]
