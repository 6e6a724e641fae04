# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the references of the release file and of a site's data, as pages and as JSON Schema, from what checks them.

``python3 docs/generate.py`` writes what has changed and names it; with ``--check`` it writes nothing and fails where
something would change. A page keeps what stands above its mark, which is written by hand. It needs PyYAML, as the
environment of ``make env`` has it.
"""

from __future__ import annotations

import functools
import importlib
import json
import pathlib
import re
import sys
import textwrap
from typing import Any, Dict, Iterator

import yaml

TOP = pathlib.Path(__file__).resolve().parents[1]
REFERENCE = TOP / "docs" / "reference"
MARK = "<!-- Below this line docs/generate.py writes. -->\n"
WIDTH = 120

Options = Dict[str, Any]

#: The words of a page for the types of an argument specification.
TYPES = {"str": "text", "path": "path", "int": "whole number", "float": "number", "bool": "true or false",
         "list": "list", "dict": "mapping", "raw": "anything"}

#: JSON Schema's words for the same; what is not here may be anything.
JSON_TYPES = {"str": "string", "path": "string", "int": "integer", "float": "number", "bool": "boolean",
              "list": "array", "dict": "object"}

#: What a value of a site's data may be instead of its type: a template, which only Ansible knows the value of.
TEMPLATE = r"\{\{"

#: The lists of the role release that describe a site's data: heading, entry of the specification.
SITE_PARTS = (
    ("The site itself", "site"),
    ("Jobs and ranks", "site_data"),
    ("Acceptances", "site_acceptance"),
    ("Partitions", "site_partitions"),
    ("Containers", "site_container"),
)

#: The variable whose values are mappings with the keys of another list.
PARTITIONS, PARTITION = "torchstack_partitions", "site_partition"

TYPED = "On the command line"

EXTENDS = "extends"
EXTENDS_SAYS = "The release that this file differs from: one of the same directory, which extends no other."
PARTS = "parts"
PARTS_SAY = "Files that have further keys of this release file, each in a directory beside it, as 2026-12-01/rules.yml."
OF_A_FILE, OF_A_PART = "release-file.schema.json", "release-file-part.schema.json"

#: What stands in brackets of Ansible's markup, with its own brackets, without the plugin or the collection before it.
INSIDE = r"(?:[\w.]+#\w+:|hpcml\.torchstack\.)?((?:[^()]|\([^()]*\))*)\)"


@functools.lru_cache(maxsize=None)
def loaded(path: str) -> Any:
    return yaml.safe_load((TOP / path).read_text(encoding="utf-8"))


def specified(role: str, entry: str) -> Options:
    """The options of one entry of a role's argument specification."""
    return loaded("roles/%s/meta/argument_specs.yml" % role)["argument_specs"][entry].get("options", {})


@functools.lru_cache(maxsize=None)
def patterns(name: str) -> Options:
    """Return the rules for texts of a ``release`` file or of a ``site`` by their dotted path, as a rollout has them."""
    return dict(collection("release_file").text_patterns() if name == "release" else collection("patterns").SITE)


def collection(module: str) -> Any:
    """Import a module of the package that judges site data and release files."""
    sys.path.insert(0, str(TOP))
    try:
        return importlib.import_module("plugins.module_utils.definition." + module)
    finally:
        sys.path.remove(str(TOP))


def description(option: Options) -> str:
    words = option.get("description", "")
    return " ".join(words if isinstance(words, list) else [words])


def markdown(text: str) -> str:
    """Ansible's markup as Markdown."""
    text = re.sub(r"\bP\(([^#)]*)#\w+\)", r"M(\1)", text)
    text = re.sub(r"\b(?:RV|[CEMOV])\(" + INSIDE, lambda found: "`%s`" % found[1], text)
    text = re.sub(r"\bI\(" + INSIDE, r"*\1*", text)
    text = re.sub(r"\bL\(([^,)]*), *([^)]*)\)", r"[\1](\2)", text)
    return re.sub(r"\bU\(([^)]*)\)", r"<\1>", text)


def plain(text: str) -> str:
    """Ansible's markup as plain text."""
    return re.sub(r"\b(?:RV|[CEIMOUV])\(" + INSIDE, r"\1", text)


# JSON Schema


def json_schema(option: Options, rules: Options, path: str, templates: bool) -> Options:
    """JSON Schema for one option; ``templates`` allows a template wherever a value is no text anyhow."""
    kind = option.get("type", "str")
    schema: Options = {"type": JSON_TYPES[kind]} if kind in JSON_TYPES else {}
    if kind == "list":
        item = {"type": option.get("elements", "raw")}
        item.update({key: option[key] for key in ("options", "choices") if key in option})
        schema["items"] = json_schema(item, rules, path + "[]", templates)
    elif option.get("choices"):
        schema = {"enum": option["choices"]}
    elif option.get("options"):
        schema.update(json_level(option["options"], rules, path, templates))
    rule = rules.get(path)
    if rule:
        schema["pattern"] = "^(?:%s)$" % rule["pattern"] + ("|" + TEMPLATE if templates else "")
    if templates and schema and schema.get("type") != "string":
        schema = {"anyOf": [schema, {"type": "string", "pattern": TEMPLATE}]}
    said = plain(description(option)) + (" Form: %s." % rule["says"] if rule and rule["says"] else "")
    schema = {**({"description": said} if said else {}), **schema}
    if "default" in option and not templates:
        schema["default"] = option["default"]
    return schema


def json_level(options: Options, rules: Options, path: str, templates: bool) -> Options:
    """JSON Schema for the keys of one mapping."""
    below = {name: json_schema(option, rules, path + "." + name if path else name, templates)
             for name, option in options.items()}
    required = [name for name, option in options.items() if option.get("required")]
    return {"properties": below, **({"required": required} if required else {}), "additionalProperties": False}


def release_schema() -> Options:
    """JSON Schema for a release file: of one that extends another, what differs."""
    whole = json_level(specified("release", "release_file"), patterns("release"), "", templates=False)
    derived = differing(whole)
    name = {"type": "string", "pattern": "^[^/].*/.*[.]yml$"}
    parts = {PARTS: {"type": "array", "items": name, "description": PARTS_SAY}}
    derived["properties"] = {EXTENDS: {"type": "string", "description": EXTENDS_SAYS}, **parts, **derived["properties"]}
    whole["properties"] = {**parts, **whole["properties"]}
    # What is not here may be in a part.
    whole.update({"if": {"required": [PARTS]}, "then": {"required": ["release"]},
                  "else": {"required": whole.pop("required")}})
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "A release file of hpcml.torchstack",
            "type": "object", "if": {"required": [EXTENDS]}, "then": {**derived, "required": ["release"]},
            "else": whole}


def part_schema() -> Options:
    """JSON Schema for a part of a release file, which may extend another one: some keys at the top."""
    keys = {name: {"$ref": "%s#/then/properties/%s" % (OF_A_FILE, name)}
            for name in specified("release", "release_file") if name != "release"}
    return {"$schema": "http://json-schema.org/draft-07/schema#",
            "title": "A part of a release file of hpcml.torchstack", "type": "object",
            "properties": keys, "additionalProperties": False}


def differing(schema: Options) -> Options:
    """The same of mappings that may lack what they need, as another file has it, and null where it is to be removed."""
    found = {key: value for key, value in schema.items() if key not in ("required", "default")}
    if "properties" in found:
        found["properties"] = {name: or_null(differing(below)) for name, below in found["properties"].items()}
    return found


def or_null(schema: Options) -> Options:
    said = {key: schema[key] for key in ("description",) if key in schema}
    return {**said, "anyOf": [{key: value for key, value in schema.items() if key not in said}, {"type": "null"}]}


def site_schema() -> Options:
    """JSON Schema for the variables of a site, with those of every role; other variables are the site's own."""
    options: Options = {}
    for role in sorted(path.name for path in (TOP / "roles").iterdir() if path.is_dir()):
        options.update({name: {key: value for key, value in option.items() if key != "required"}
                        for name, option in specified(role, "main").items()})
    for _heading, entry in SITE_PARTS:
        options.update(specified("release", entry))
    level = json_level(options, patterns("site"), "", templates=True)
    level["properties"][PARTITIONS]["anyOf"][0]["additionalProperties"] = partition_schema()
    # A site may have them in several files, and its rehearsal replaces some: none is required of one file.
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "A site's data for hpcml.torchstack",
            "type": "object", "properties": dict(sorted(level["properties"].items()))}


def partition_schema() -> Options:
    """JSON Schema for one partition: its keys have those of the variables over which they are laid."""
    known = collection("partitions")
    entries = [*(("release", entry) for entry in (PARTITION, "site_data", "site_acceptance")), ("node_health", "main")]
    described = {role if entry == "main" else entry: {"options": specified(role, entry)} for role, entry in entries}
    options = known.keys(described)
    rules = known.text_patterns(PARTITION)
    return json_schema({"type": "dict", "options": options}, rules, PARTITION, templates=True)


# Pages


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def code(value: object) -> str:
    """A value as it is written in YAML."""
    return "`%s`" % (value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False))


def type_words(option: Options) -> str:
    kind = TYPES[option.get("type", "str")]
    if option.get("type") == "list" and option.get("elements"):
        kind += " of " + {"str": "texts", "path": "paths", "int": "whole numbers", "dict": "mappings"}.get(
            option["elements"], TYPES[option["elements"]])
    return kind


def meaning(option: Options, rule: Options | None) -> str:
    """The description of a key with what its value may be."""
    said = [markdown(description(option))]
    if option.get("choices"):
        said.append("One of %s." % ", ".join(code(choice) for choice in option["choices"]))
    if rule and rule["says"]:
        said.append("Form: %s." % rule["says"])
    return " ".join(said)


def wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def default_words(option: Options) -> str:
    if option.get("required"):
        return "**required**"
    return code(option["default"]) if "default" in option else ""


def depth(option: Options) -> int:
    return 1 + max(map(depth, option["options"].values())) if option.get("options") else 0


def rows(options: Options, rules: Options, path: str, level: str) -> Iterator[str]:
    """The rows of a table; a mapping of plain keys has them in the same table.

    Args:
        path: the dotted path of the mapping, for the patterns.
        level: the same from the section's own mapping on, for people.
    """
    for name, option in options.items():
        place, shown = (path + "." + name if path else name), level + name
        rule = rules.get(place) or rules.get(place + "[]")
        has_section = section_of(place, option)
        title = "[`%s`](#%s)" % (shown, anchor(place)) if has_section else "`%s`" % shown
        yield "| %s | %s | %s | %s |" % (title, type_words(option), cell(default_words(option)),
                                         cell(meaning(option, rule)))
        if option.get("options") and not has_section:
            mark = "[]" if option.get("type") == "list" else ""
            yield from rows(option["options"], rules, place + mark, shown + mark + ".")


def section_of(place: str, option: Options) -> bool:
    """Whether a mapping has a section of its own: at the top, or where mappings in it have mappings in them."""
    return bool(option.get("options")) and ("." not in place or depth(option) > 1)


def anchor(place: str) -> str:
    return re.sub(r"[^\w-]", "", place.lower())


def sections(options: Options, rules: Options, path: str, heading: str) -> Iterator[str]:
    """A table, and a section for each mapping that has one."""
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    yield from rows(options, rules, path, "")
    yield ""
    for place, option in below(options, path):
        yield "%s %s\n" % (heading, place)
        yield from (wrapped(sentence) for sentence in re.split(r"(?<=[.]) (?=[A-Z`])", markdown(description(option))))
        yield ""
        mark = "[]" if option.get("type") == "list" else ""
        yield from sections(option["options"], rules, place + mark, heading + "#" if heading < "####" else heading)


def below(options: Options, path: str) -> Iterator[tuple[str, Options]]:
    """The mappings that get a section, with their places."""
    for name, option in options.items():
        place = path + "." + name if path else name
        if section_of(place, option):
            yield place, option
        elif option.get("options"):
            yield from below(option["options"], place + ("[]" if option.get("type") == "list" else ""))


def release_page() -> str:
    options = specified("release", "release_file")
    return "\n".join(["## All keys", "", *sections(options, patterns("release"), "", "##")])


def site_page() -> str:
    rules = patterns("site")
    lines: list[str] = []
    for heading, entry in SITE_PARTS:
        options = specified("release", entry)
        typed = {name: option for name, option in options.items() if description(option).startswith(TYPED)}
        others = {name: option for name, option in options.items() if name not in typed}
        lines += ["## " + heading, "", *sections(others, rules, "", "###")]
        if PARTITIONS in options:
            lines += ["### %s.NAME" % PARTITIONS, "", *sections(specified("release", PARTITION), {}, "", "####")]
        if typed:
            lines += ["## " + TYPED, "", *sections(typed, rules, "", "###")]
    return "\n".join(lines)


def wrong_values_page() -> str:
    """The table of mistakes, from the data by which they are tested; of a sentence that is long, its beginning."""
    rows = ["| what is wrong | in | what is said |", "|---|---|---|"]
    for case in loaded("tests/fixtures/lint/wrong_values.yml"):
        text = re.sub(r"([|*_<>\[\]])", r"\\\1", case.get("says", "nothing: %s." % case.get("harmless")))
        text += "" if text[-1] in ".?" else " …"
        rows.append("| %s | `%s` | %s |" % (case["what"], case["in"].partition("/")[0], text))
    return "\n".join(rows)


def written() -> Iterator[tuple[pathlib.Path, str]]:
    """Every generated file with what it has to hold."""
    for name, page in (
        ("release-file.md", release_page), ("site.md", site_page), ("wrong-values.md", wrong_values_page),
    ):
        path = REFERENCE / name
        head, mark, _old = path.read_text(encoding="utf-8").partition(MARK)
        yield path, head + mark + "\n" + page().rstrip("\n") + "\n"
    for name, schema in ((OF_A_FILE, release_schema), (OF_A_PART, part_schema), ("site.schema.json", site_schema)):
        yield REFERENCE / name, json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def main(check: bool) -> int:
    changed = [(path, text) for path, text in written()
               if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in changed:
        print("%s %s" % ("out of date:" if check else "written:", path.relative_to(TOP)))
        if not check:
            path.write_text(text, encoding="utf-8")
    if changed and check:
        print("Run python3 docs/generate.py.")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
