"""Judges an OpenAPI document by a public validator, and its examples by a public JSON Schema library."""

import json
import sys

from jsonschema import Draft7Validator, Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

document = json.load(open(sys.argv[1], encoding="utf-8"))
errors = [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]
checked = 0
for kind, webhook in document["webhooks"].items():
    examples = webhook["post"]["requestBody"]["content"]["application/json"]["examples"]
    for version, example in examples.items():
        schema = document["components"]["schemas"].get(f"{kind}..{version}.data")
        if schema is None:
            continue
        draft = Draft7Validator if isinstance(schema, dict) and "draft-07" in schema.get("$schema", "") else Draft202012Validator
        draft.check_schema(schema)
        # By its place in the document, which is what references inside of it go by.
        resource = Resource.from_contents(document, default_specification=DRAFT202012)
        registry = Registry().with_resource("urn:document", resource)
        reference = {"$ref": f"urn:document#/components/schemas/{kind}..{version}.data"}
        found = draft(reference, registry=registry).iter_errors(example["value"]["data"])
        errors += [f"{kind} {version}: {error.message}" for error in found]
        checked += 1
print(f"{len(document['webhooks'])} webhooks, {checked} examples, {len(errors)} errors", *errors, sep="\n")
sys.exit(1 if errors else 0)
