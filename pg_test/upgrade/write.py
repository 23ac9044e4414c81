"""Writes the update script sql/webhook_outbox--OLD--NEW.sql as far as it can be derived: `write.py OLD`.

It compares the frozen install script of OLD, which lies beside this file, with the numbered files of sql/, statement
by statement, and writes what is new below the line MARK; what stands above is written by hand and stays. By hand are
the changes of tables that exist already, and of whatever depends on a function that has to be dropped: such places are
told on standard error. Whether the result is complete is for pg_test/upgrade.rs to say, which compares catalogues.
"""

import dataclasses
import pathlib
import re
import sys

import pglast
from pglast import ast, enums
from pglast.stream import RawStream

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARK = "-- Written by pg_test/upgrade/write.py from here on; what it cannot derive stands above.\n"
# Run once by CREATE EXTENSION, or for all there is; an update has its own, closing.sql and rights.sql.
NOT_AGAIN = {"00_guard.sql": "do", "90_privileges.sql": "do revoke", "99_finish.sql": "do"}
# The install script's own tail, which is written to be run again. A grant that is no news is left to the operator, who
# may have taken it back, unless its object is made anew.
AGAIN = {"91_access.sql": "do"}


@dataclasses.dataclass
class Statement:
    """One statement: its text, its first word, the object it makes if it makes one, and what cannot be replaced."""

    text: str
    file: str
    verb: str
    kind: str = ""
    name: str = ""
    frozen: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


def main() -> int:
    old_version = sys.argv[1]
    new_version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    old = statements(HERE / f"webhook_outbox--{old_version}.sql")
    new = [s for file in sorted((ROOT / "sql").glob("[0-9][0-9]_*.sql")) for s in statements(file)]
    target = ROOT / "sql" / f"webhook_outbox--{old_version}--{new_version}.sql"
    by_hand = target.read_text().split(MARK)[0] if target.exists() else head(old_version, new_version)
    body, told = difference(old, new, bare(by_hand))
    target.write_text(by_hand + MARK + "\n" + body)
    for line in told:
        print(f"{target.name}: {line}", file=sys.stderr)
    print(f"{target.relative_to(ROOT)}: {body.count(chr(10))} lines written, {len(told)} things to look at")
    return 0


def head(old: str, new: str) -> str:
    return (
        f"-- Brings version {old} to {new}. See CHANGELOG.md for whether the server has to be restarted first.\n"
        f"\\echo Use \"ALTER EXTENSION webhook_outbox UPDATE TO '{new}'\" to load this file. \\quit\n\n"
    )


def difference(old: list[Statement], new: list[Statement], by_hand: str) -> tuple[str, list[str]]:
    """The derived part of the script, and what somebody has to look at."""
    known = {bare(s.text) for s in old}
    before = {s.key: s for s in old if s.kind}
    after = {s.key: s for s in new if s.kind}
    gone = doomed(old, after)
    told, written, granted, made, run = [], [], [], [], []
    for key, statement in before.items():
        if key not in after and statement.kind not in ("function", "view") and statement.name not in by_hand:
            told.append(f"{statement.kind} {statement.name} is no more: drop it by hand")
    for key in gone:
        if key in after and key[0] == "view":
            told.append(f"view {key[1]} is made anew: what operators granted on it themselves is lost")
    dropped = [f"drop {kind} {name};" for kind, name in reversed(gone)]
    for statement in new:
        if statement.verb in AGAIN.get(statement.file, "").split():
            run.append(statement.text + ";")
            continue
        if statement.verb in NOT_AGAIN.get(statement.file, "").split() or statement.text.endswith("webhook._wake()"):
            continue
        if statement.key in gone:
            made.append(statement)
            written.append(statement.text + ";")
            continue
        if bare(statement.text) in known and not (statement.verb in ("grant", "comment") and about(statement, made)):
            continue
        former = before.get(statement.key) if statement.kind else None
        if former is None:
            # What is granted comes after the closing, which takes away whatever new objects came with.
            (granted if statement.verb == "grant" else written).append(statement.text + ";")
            if statement.kind:
                made.append(statement)
            elif statement.verb not in ("comment", "select", "grant"):
                told.append(f"taken as it is, is that right? {bare(statement.text)[:100]}")
        elif statement.kind in ("function", "view"):
            written.append(re.sub(r"^create ", "create or replace ", statement.text, count=1, flags=re.MULTILINE) + ";")
        elif statement.name not in by_hand:
            told.append(f"{statement.kind} {statement.name} has changed: alter it by hand")
    routines = ", ".join(f'"{s.name}"' for s in made if s.kind == "function")
    relations = ", ".join(s.name for s in made if s.kind in ("table", "view"))
    closing = (HERE / "closing.sql").read_text().replace("NEW_ROUTINES", routines).replace("NEW_RELATIONS", relations)
    parts = dropped + written + ([closing.strip()] if made else []) + granted + run + [(HERE / "rights.sql").read_text().strip()]
    return "\n\n".join(parts) + "\n", told


def doomed(old: list[Statement], after: dict) -> list[tuple[str, str]]:
    """Functions and views that cannot stay, and those that use them, in the order in which they were made."""
    gone: list[tuple[str, str]] = []
    for statement in old:
        if statement.kind not in ("function", "view"):
            continue
        now = after.get(statement.key)
        kept = now is not None and fits(statement, now)
        # PostgreSQL follows what views and functions with a parsed body use; other bodies are text.
        parsed = statement.kind == "view" or re.search(r"^(return|begin atomic)\b", statement.text, re.MULTILINE)
        names = [name.split("(")[0] for _, name in gone]
        uses = parsed and any(re.search(rf"{re.escape(name)}\b", bare(statement.text)) for name in names)
        if not kept or uses:
            gone.append(statement.key)
    return gone


def fits(old: Statement, new: Statement) -> bool:
    """Whether CREATE OR REPLACE can make the one into the other."""
    if old.kind == "function":
        return old.frozen == new.frozen
    return old.frozen != "" and new.frozen.startswith(old.frozen)


def about(statement: Statement, made: list[Statement]) -> bool:
    return any(re.search(rf"{re.escape(s.name.split('(')[0])}(?=[ (.])", statement.text) for s in made)


def statements(file: pathlib.Path) -> list[Statement]:
    text = "\n".join(line for line in file.read_text().split("\n") if not line.startswith("\\"))
    return [described(part.strip(), file.name) for part in pglast.split(text)]


def described(text: str, file: str) -> Statement:
    node = pglast.parse_sql(text)[0].stmt
    statement = Statement(text, file, bare(text).split()[0])
    if isinstance(node, ast.CreateFunctionStmt):
        outputs = (enums.FunctionParameterMode.FUNC_PARAM_OUT, enums.FunctionParameterMode.FUNC_PARAM_TABLE)
        parameters = node.parameters or ()
        inputs = [p for p in parameters if p.mode not in outputs]
        types = ", ".join(RawStream()(p.argType) for p in inputs)
        statement.kind = "function"
        statement.name = f"{dotted(node.funcname)}({types})"
        returned = RawStream()(node.returnType) if node.returnType else ""
        statement.frozen = repr(
            (
                [(p.name, p.defexpr is not None) for p in inputs],
                [(p.name, RawStream()(p.argType)) for p in parameters if p.mode in outputs],
                returned,
            )
        )
    elif isinstance(node, ast.ViewStmt):
        statement.kind, statement.name = "view", f"{node.view.schemaname}.{node.view.relname}"
        statement.frozen = columns(node.query)
    elif isinstance(node, ast.CreateStmt):
        statement.kind, statement.name = "table", f"{node.relation.schemaname}.{node.relation.relname}"
    elif isinstance(node, ast.IndexStmt):
        statement.kind, statement.name = "index", f"{node.relation.schemaname}.{node.idxname}"
    elif isinstance(node, ast.CreateTrigStmt):
        statement.kind, statement.name = "trigger", f"{node.trigname} on {node.relation.schemaname}.{node.relation.relname}"
    elif isinstance(node, ast.CreatePolicyStmt):
        statement.kind, statement.name = "policy", f"{node.policy_name} on {node.table.schemaname}.{node.table.relname}"
    return statement


def columns(query) -> str:
    """The names of a query's columns, each with a comma behind it; empty if the text does not tell."""
    while query.larg:
        query = query.larg
    names = []
    for target in query.targetList:
        fields = getattr(target.val, "fields", None)
        called = getattr(target.val, "funcname", None)
        name = target.name or getattr((fields or called or [None])[-1], "sval", None)
        if name is None:
            return ""
        names.append(name + ",")
    return "".join(names)


def dotted(names) -> str:
    return ".".join(name.sval for name in names)


def bare(text: str) -> str:
    """Without comments that begin a line: they may change as they like."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("--")).strip()


sys.exit(main())
