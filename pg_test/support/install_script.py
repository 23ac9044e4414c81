"""Holds the install script against pgspot, which finds what an attacker could hook into: unqualified names where the
search path is not fixed, functions without a search path of their own, unsafe SECURITY DEFINER.

It is told what CREATE EXTENSION and 00_guard.sql see to: the schema is the extension's own, and names are looked up
there and in pg_catalog. Two things it cannot read, see below; it may complain about nothing else.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HEAD = "create schema webhook; set search_path = pg_catalog, webhook, pg_temp;\n"
# pgspot fails on bodies in standard SQL, and they need no search path: names are resolved when they are created.
STANDARD_BODY = re.compile(r"^return (.*);$", re.MULTILINE)
ATOMIC_BODY = re.compile(r"^begin atomic\n(.*?)^end;$", re.MULTILINE | re.DOTALL)
# pglast's PL/pgSQL parser has no catalogue, so it does not know the fields of a variable whose type is a table's row.
# Such a file is checked without its function bodies; the bodies are under the function's own search path.
UNKNOWN_FIELD = "is not a known variable"


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[2]
    pgspot = pathlib.Path(sys.executable).with_name("pgspot")
    bodies, faults = 0, []
    for file in sorted((root / "sql").glob("[0-9][0-9]_*.sql")):
        text = file.read_text(encoding="utf8")
        text = "\n".join("" if line.startswith("\\") else line for line in text.split("\n"))
        text = HEAD + STANDARD_BODY.sub(r"set search_path = pg_catalog, pg_temp as $$ select \1 $$;", text)
        text = ATOMIC_BODY.sub(r"set search_path = pg_catalog, pg_temp as $$ \1 $$;", text)
        said = check(pgspot, text, [])
        if UNKNOWN_FIELD in said:
            said = check(pgspot, text, ["--no-plpgsql"])
        else:
            bodies += 1
        if said.split() != "Errors: 0 Warnings: 0 Unknown: 0".split():
            faults.append(f"{file.relative_to(root)}:\n{said}")
    # A check that finds nothing because it looks at nothing would pass as well.
    planted = HEAD + "create function webhook.f() returns text language sql security definer as $$ select 1 $$;"
    if "PS003" not in check(pgspot, planted, []):
        faults.append("pgspot does not find a SECURITY DEFINER function without a search path")
    if bodies < 10:
        faults.append(f"pgspot read the function bodies of {bodies} files only")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def check(pgspot: pathlib.Path, text: str, options: list[str]) -> str:
    """What pgspot says about a script."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf8") as script:
        script.write(text)
        script.flush()
        run = subprocess.run([pgspot, *options, script.name], capture_output=True, text=True, check=False)
    return (run.stdout + run.stderr).strip()


sys.exit(main())
