"""Lint of names and of first sentences, held by a budget that may only fall.

Habits that hide what code does, the first four counted over the product's packages, the last two
over tests:

- participles: functions named by a participle alone (`shown`, `_told`) instead of a verb with its
  object (`render_table`) or a noun of a property (`Catalog.tools`);
- parameters: those named by a participle alone (`sealed: bytes`), which says how a value came about
  and not what it is; but not `left` beside `right`;
- pronouns: assigned locals and parameters called `one`, `it`, `what`, `found` or the like, but not
  `other` of an operator (`__eq__`), its usual name;
- openings: docstrings that begin with What, Who, Whose, Those, That, It or Which;
- helpers: participles among the functions of tests;
- riddles: names of tests with a pronoun in place of their subject or object
  (`test_what_is_of_no_use_is_not_passed_on` for `test_invalid_metadata_is_not_forwarded`).

`python .ci/names.py` compares the counts with `.ci/names.json` and fails where one is higher.
`--list` names the places, `--lower` writes lower counts.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("config", "gateway", "registry", "schemas")
TESTS = "tests"
OF_PRODUCT = ("participles", "parameters", "pronouns", "openings")
OF_TESTS = ("helpers", "riddles")
RULES = OF_PRODUCT + OF_TESTS
BUDGET = Path(__file__).with_name("names.json")

IRREGULAR = frozenset(
    re.findall(
        r"\w+",
        """begun bent bought bound broken brought built caught chosen cut dealt done drawn driven
        fallen fed felt forgotten found frozen given gone grown heard held hidden hurt kept
        known laid led left lent lost made meant met paid proven put risen run said seen sent
        shown shut sought spent split spoken stolen stood taken taught thought told torn
        understood woken won worn written""",
    )
)
REGULAR = re.compile(r"[a-z]{2,}(?<!e)ed")
# Nouns, adjectives and verbs that end like participles, and verbs that are their own.
WORDS = frozenset(
    re.findall(
        r"\w+", "embed shed exceed proceed succeed naked hundred sacred cut put run split led"
    )
)
PRONOUNS = frozenset(
    re.findall(
        r"\w+",
        """one it other these those what which who asked found given kept known said shown told
        wanted""",
    )
)
OPERATOR = re.compile(r"__\w+__")
OPENINGS = frozenset(("What", "Who", "Whose", "Those", "That", "It", "Which"))
RIDDLES = frozenset(re.findall(r"\w+", "it they them those ones others such who what which"))
# `one` is a number before a noun (`one_connection`), and a pronoun before these and at the end.
AFTER_PRONOUN = frozenset(
    re.findall(
        r"\w+",
        """and are as at but by can does ends for from gets gives had has have in is it may must
        no not of on or than that they to until was were when where which while who with without""",
    )
)

Place = tuple[str, int, str]  # path, line, text


def is_participle(name: str) -> bool:
    word = name.strip("_")
    if word in WORDS:
        return False
    return word in IRREGULAR or REGULAR.fullmatch(word) is not None


def is_participle_parameter(name: str, names: Sequence[str]) -> bool:
    """Whether a parameter is named so, among `names` of its function: `left` may have a `right`."""
    return is_participle(name) and not (name == "left" and "right" in names)


def is_riddle(name: str) -> bool:
    """Whether the name of a test has a pronoun where its subject or object should be."""
    words = name.removeprefix("test_").split("_")
    return any(
        word in RIDDLES or (word == "one" and (not after or after in AFTER_PRONOUN))
        for word, after in zip(words, [*words[1:], ""], strict=True)
    )


def targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=assigned):
            yield from assigned
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            yield target
        case (
            ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target)
        ):
            yield target
        case ast.withitem(optional_vars=ast.expr() as target):
            yield target


def parameters(node: ast.AST) -> Iterator[ast.arg]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        is_operator = OPERATOR.fullmatch(getattr(node, "name", "")) is not None
        for child in ast.iter_child_nodes(node.args):
            if isinstance(child, ast.arg) and not (is_operator and child.arg == "other"):
                yield child


def assigned_names(tree: ast.AST) -> Iterator[ast.Name | ast.arg]:
    for node in ast.walk(tree):
        yield from parameters(node)
        for target in targets(node):
            for leaf in ast.walk(target):
                if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store):
                    yield leaf


def opening(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """First word of the node's docstring, empty without one."""
    words = (ast.get_docstring(node) or "").split(maxsplit=1)
    return words[0].rstrip(",:;.") if words else ""


def walk(path: Path) -> tuple[Counter[str], dict[str, list[Place]]]:
    """Totals of functions, names and docstrings of a file, and the places that break each rule."""
    tree = ast.parse(path.read_text())
    name = str(path.relative_to(ROOT))
    totals: Counter[str] = Counter()
    places: dict[str, list[Place]] = {rule: [] for rule in RULES}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            rule = "helpers" if Path(TESTS) in Path(name).parents else "participles"
            totals[rule] += 1
            if is_participle(node.name):
                places[rule].append((name, node.lineno, node.name))
            if node.name.startswith("test_"):
                totals["riddles"] += 1
                if is_riddle(node.name):
                    places["riddles"].append((name, node.lineno, node.name))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            totals["openings"] += 1
            if (word := opening(node)) in OPENINGS:
                line = node.body[0].lineno
                places["openings"].append((name, line, word))
        names = [parameter.arg for parameter in parameters(node)]
        totals["parameters"] += len(names)
        places["parameters"] += [
            (name, getattr(node, "lineno", 0), text)
            for text in names
            if is_participle_parameter(text, names)
        ]
    for leaf in assigned_names(tree):
        totals["pronouns"] += 1
        text = leaf.arg if isinstance(leaf, ast.arg) else leaf.id
        if text.strip("_") in PRONOUNS:
            places["pronouns"].append((name, leaf.lineno, text))
    return totals, places


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--list", action="store_true", help="name every place")
    parser.add_argument("--lower", action="store_true", help="write lower counts into the budget")
    parser.add_argument(
        "paths", nargs="*", help="files or folders; the product's packages without any"
    )
    options = parser.parse_args(arguments)
    totals: Counter[str] = Counter()
    places: dict[str, list[Place]] = {rule: [] for rule in RULES}
    for top in options.paths or (*PACKAGES, TESTS):
        folder = (ROOT / top).resolve()
        rules = {TESTS: OF_TESTS}.get(top, OF_PRODUCT if top in PACKAGES else RULES)
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            of_file, broken = walk(path)
            for rule in rules:
                totals[rule] += of_file[rule]
                places[rule] += broken[rule]
    if options.list:
        for rule, listed in places.items():
            for path_, line, text in listed:
                sys.stdout.write(f"{path_}:{line}: {rule}: {text}\n")
    counts = {rule: len(listed) for rule, listed in places.items()}
    for rule, count in counts.items():
        share = count / max(1, totals[rule])
        sys.stdout.write(f"{rule}: {count} of {totals[rule]} ({share:.2%})\n")
    return 0 if options.paths else compare(counts, lower=options.lower)


def compare(counts: Mapping[str, int], *, lower: bool) -> int:
    """1 if a count is above its budget; a lower one is written if asked for."""
    budget: dict[str, int] = json.loads(BUDGET.read_text()) if BUDGET.exists() else dict(counts)
    broken = [rule for rule, count in counts.items() if count > budget.get(rule, count)]
    for rule in broken:
        sys.stderr.write(f"{rule}: {counts[rule]}, expected at most {budget[rule]} (--list)\n")
    if lower or not BUDGET.exists():
        lower_counts = {rule: min(count, budget.get(rule, count)) for rule, count in counts.items()}
        BUDGET.write_text(json.dumps(lower_counts, indent=2) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
