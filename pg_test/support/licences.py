"""Checks the licence of every crate that is linked or used to build, against the list of those we accept."""

import json
import re
import subprocess
import sys

ACCEPTED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",  # the root certificates of webpki-roots
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",  # libFuzzer, which is part of no build but the fuzzing one
    "PostgreSQL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def accepted(expression: str) -> bool:
    """Whether an SPDX expression of AND, OR and parentheses can be met with the accepted licences."""
    # A slash is the old spelling of OR; an exception only grants more.
    expression = re.sub(r"\s+WITH\s+\S+", "", expression.replace("/", " OR "))
    terms = [
        term if term in "()" else f" {term.lower()} " if term in ("AND", "OR") else str(term in ACCEPTED)
        for term in re.findall(r"[()]|[^\s()]+", expression)
    ]
    return bool(eval("".join(terms), {"__builtins__": {}}))  # only True, False, and, or and parentheses


def main() -> int:
    compiler = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (\S+)", compiler, re.M)[1]
    packages = []
    for manifest in ("Cargo.toml", "fuzz/Cargo.toml"):
        command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host, "--all-features"]
        command += ["--manifest-path", manifest]
        packages += json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    packages = list({package["id"]: package for package in packages}.values())
    refused = [
        f"{package['name']} {package['version']}: {package['license']}"
        for package in packages
        if not accepted(package["license"] or "none")
    ]
    print(f"licences: {len(packages)} crates, {len(refused)} refused", *refused, sep="\n  ")
    return 1 if refused else 0


sys.exit(main())
