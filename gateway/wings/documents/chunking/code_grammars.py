"""The languages of source code that are parsed, and what defines, calls, imports and inherits in
the syntax trees of their grammars."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from msgspec import Struct
from msgspec.structs import replace
from tree_sitter import Language, Parser


class Grammar(Struct, frozen=True):
    """Node types of one grammar. Fields of nodes are named as in tree-sitter."""

    module: str
    function: str = "language"
    definitions: Mapping[str, str] = {}  # node type: kind of the symbol
    bodied: frozenset[str] = frozenset()  # definitions only where they have a body
    variables: frozenset[str] = frozenset()  # definitions only where their value is
    values: frozenset[str] = frozenset()  # one of these
    exported: frozenset[str] = frozenset()  # around a variable: a constant, whatever its value
    named: frozenset[str] = frozenset()  # definitions only with a name that is not a variable's
    wrappers: frozenset[str] = frozenset()  # around a definition, with which they begin
    calls: Mapping[str, str] = {}  # node type: field of what is called
    imports: Mapping[str, str] = {}  # node type: field of what is imported; empty: each name
    inherits: frozenset[str] = frozenset()  # types or fields of nodes with the names of bases
    signatures: frozenset[str] = frozenset()  # definitions without a body: overloads of the next
    separated: bool = False  # whether line breaks separate members that begin with a bracket
    implements: str = ""  # field of definitions that only implement what is defined elsewhere
    tests: re.Pattern[bytes] | None = None  # attributes of definitions that are tests


_PYTHON = Grammar(
    "tree_sitter_python",
    definitions={
        "function_definition": "function",
        "class_definition": "class",
        "assignment": "function",
    },
    variables=frozenset({"assignment"}),
    values=frozenset({"lambda"}),
    wrappers=frozenset({"decorated_definition", "expression_statement"}),
    calls={"call": "function"},
    imports={"import_statement": "", "import_from_statement": ""},
    inherits=frozenset({"superclasses"}),
)
_JAVASCRIPT = Grammar(
    "tree_sitter_javascript",
    definitions={
        "function_declaration": "function",
        "generator_function_declaration": "function",
        "class_declaration": "class",
        "method_definition": "method",
        "variable_declarator": "function",
        "field_definition": "method",
        "public_field_definition": "method",
        "abstract_class_declaration": "class",
        "interface_declaration": "interface",
        "type_alias_declaration": "type",
        "enum_declaration": "enum",
        "internal_module": "module",
        "function_signature": "function",
        "abstract_method_signature": "method",
        "method_signature": "method",
        "assignment_expression": "function",
        "pair": "method",
        "function_expression": "function",
        "generator_function": "function",
    },
    variables=frozenset(
        {
            "variable_declarator",
            "field_definition",
            "public_field_definition",
            "assignment_expression",
            "pair",
        }
    ),
    values=frozenset({"arrow_function", "function_expression", "generator_function", "class"}),
    exported=frozenset({"export_statement"}),
    named=frozenset({"function_expression", "generator_function"}),
    wrappers=frozenset(
        {
            "export_statement",
            "lexical_declaration",
            "variable_declaration",
            "ambient_declaration",
            "expression_statement",
        }  # of assignments, and around namespaces
    ),
    calls={"call_expression": "function", "new_expression": "constructor"},
    imports={"import_statement": "source"},
    inherits=frozenset({"class_heritage", "extends_type_clause"}),
)
_TYPESCRIPT = replace(
    _JAVASCRIPT,
    module="tree_sitter_typescript",
    function="language_typescript",
    signatures=frozenset({"function_signature", "method_signature"}),
    separated=True,
)
_C_DEFINITIONS = {
    "function_definition": "function",
    "struct_specifier": "struct",
    "union_specifier": "union",
    "enum_specifier": "enum",
    "type_definition": "type",
}
_C_BODIED = frozenset({"struct_specifier", "union_specifier", "enum_specifier"})

GRAMMARS: Mapping[str, Grammar] = {
    "python": _PYTHON,
    "javascript": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": replace(_TYPESCRIPT, function="language_tsx"),
    "go": Grammar(
        "tree_sitter_go",
        definitions={
            "function_declaration": "function",
            "method_declaration": "method",
            "type_spec": "type",
            "method_elem": "method",
            "var_spec": "function",
            "short_var_declaration": "function",
        },
        variables=frozenset({"var_spec", "short_var_declaration"}),
        values=frozenset({"func_literal"}),
        wrappers=frozenset({"type_declaration", "var_declaration"}),
        calls={"call_expression": "function"},
        imports={"import_spec": "path"},
    ),
    "rust": Grammar(
        "tree_sitter_rust",
        definitions={
            "function_item": "function",
            "function_signature_item": "function",
            "struct_item": "struct",
            "enum_item": "enum",
            "union_item": "union",
            "trait_item": "trait",
            "impl_item": "impl",
            "mod_item": "module",
            "macro_definition": "macro",
            "type_item": "type",
            "const_item": "constant",
            "static_item": "constant",
            "let_declaration": "function",
        },
        variables=frozenset({"let_declaration"}),
        values=frozenset({"closure_expression"}),
        bodied=frozenset({"mod_item"}),
        calls={"call_expression": "function", "macro_invocation": "macro"},
        imports={"use_declaration": "argument"},
        inherits=frozenset({"trait", "trait_bounds"}),
        implements="trait",
        tests=re.compile(rb"^[ \t]*#\[(?:\w+::|cfg\((?:all\()?)?test\b", re.MULTILINE),
    ),
    "java": Grammar(
        "tree_sitter_java",
        definitions={
            "class_declaration": "class",
            "interface_declaration": "interface",
            "enum_declaration": "enum",
            "record_declaration": "class",
            "annotation_type_declaration": "interface",
            "method_declaration": "method",
            "constructor_declaration": "method",
            "variable_declarator": "function",
        },
        variables=frozenset({"variable_declarator"}),
        values=frozenset({"lambda_expression"}),
        wrappers=frozenset({"field_declaration", "local_variable_declaration"}),
        calls={"method_invocation": "name", "object_creation_expression": "type"},
        imports={"import_declaration": ""},
        inherits=frozenset({"superclass", "super_interfaces", "extends_interfaces"}),
    ),
    "c": Grammar(
        "tree_sitter_c",
        definitions=_C_DEFINITIONS,
        bodied=_C_BODIED,
        calls={"call_expression": "function"},
        imports={"preproc_include": "path"},
    ),
    "cpp": Grammar(
        "tree_sitter_cpp",
        definitions={
            **_C_DEFINITIONS,
            "class_specifier": "class",
            "namespace_definition": "module",
            "concept_definition": "type",
            "alias_declaration": "type",
            "init_declarator": "function",
        },
        variables=frozenset({"init_declarator"}),
        values=frozenset({"lambda_expression"}),
        bodied=_C_BODIED | {"class_specifier"},
        wrappers=frozenset({"template_declaration"}),
        calls={"call_expression": "function"},
        imports={"preproc_include": "path"},
        inherits=frozenset({"base_class_clause"}),
    ),
}


@cache
def parser(language: str) -> Parser | None:
    """The parser of a language in `GRAMMARS`; None: its package is not installed."""
    grammar = GRAMMARS[language]
    try:
        module = import_module(grammar.module)
    except ImportError:
        return None
    return Parser(Language(getattr(module, grammar.function)()))
