# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make a site of the pages: its order from their map, its references of roles and modules, and links that hold there.

MkDocs calls the functions named ``on_...``; see mkdocs.yml. Nothing is written into the checkout.
"""

from __future__ import annotations

import json
import os
import pathlib
import posixpath
import re
import subprocess
import sys
import tempfile
from typing import Any, Iterator

from mkdocs.structure.files import File, Files
from pymdownx import slugs, superfences

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "docs"))

import generate

COLLECTION = "hpcml.torchstack"
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
ENTRY = re.compile(r"- \[([^]]+)\]\(([^)]+)\)")

#: Which generated pages stand below which page of the map, and where each of them comes from.
ORIGINS = {"reference/roles": "roles/%s/README.md", "reference/modules": "plugins/modules/%s.py"}


def names_of(kind: str) -> list[str]:
    """The roles or the modules."""
    pattern = ORIGINS["reference/" + kind]
    prefix, suffix = pattern.split("%s")
    return sorted(str(path.relative_to(TOP))[len(prefix):-len(suffix)] for path in TOP.glob(pattern % "*"))


# The order


def nav(lines: list[str]) -> list[Any]:
    """The order of the pages, from the lists of their map: its headings, and what is said above a list."""
    found: list[Any] = [{"Map": "README.md"}]
    section: list[Any] = []
    group = ""
    for line in lines:
        entry = ENTRY.match(line)
        if line.startswith("## "):
            section, group = [], ""
            found.append({line[3:]: section})
        elif entry:
            target = section
            if group:
                if not section or group not in section[-1]:
                    section.append({group: []})
                target = section[-1][group]
            target.append(nav_entry(*entry.groups()))
        elif line.endswith(":"):
            group = line[:-1]
    return [entry for entry in found if "Map" in entry or any(entry.values())]


def nav_entry(title: str, page: str) -> dict[str, Any]:
    place = page[:-len(".md")]
    if place not in ORIGINS:
        return {title: page}
    below = ["%s/%s.md" % (place, name) for name in names_of(posixpath.basename(place))]
    return {title: [{"All": page}, *({posixpath.basename(each)[:-3]: each} for each in below)]}


def on_config(config: Any) -> Any:
    config["nav"] = nav((TOP / "docs" / "README.md").read_text(encoding="utf-8").splitlines())
    # The anchors are those that GitHub gives the same headings.
    config["mdx_configs"]["toc"]["slugify"] = slugs.slugify(case="lower")
    drawn = {"name": "mermaid", "class": "mermaid", "format": superfences.fence_code_format}
    config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [drawn]}
    return config


# The references


def on_files(files: Files, config: Any) -> Files:
    documented = module_documentation()
    for name in names_of("modules"):
        page = module_page(name, documented["%s.%s" % (COLLECTION, name)])
        files.append(File.generated(config, "reference/modules/%s.md" % name, content=page))
    for name in names_of("roles"):
        files.append(File.generated(config, "reference/roles/%s.md" % name, content=role_page(name)))
    return files


def module_documentation() -> dict[str, Any]:
    """What ansible-doc says of all modules, by their full names."""
    program = pathlib.Path(sys.executable).with_name("ansible-doc")
    with tempfile.TemporaryDirectory() as place:
        link = pathlib.Path(place, "ansible_collections", *COLLECTION.split("."))
        link.parent.mkdir(parents=True)
        link.symlink_to(TOP)
        answer = subprocess.run(
            [program, "--json", "-t", "module", *("%s.%s" % (COLLECTION, name) for name in names_of("modules"))],
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": place, "ANSIBLE_HOME": place,
                 "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")},
            stdout=subprocess.PIPE, check=True,
        )
    return json.loads(answer.stdout)


def module_page(name: str, said: dict[str, Any]) -> str:
    doc = said["doc"]
    lines = ["# " + name, "", generate.markdown(doc["short_description"]) + ".", "", *paragraphs(doc["description"])]
    lines += ["## Options", "", *generate.sections(as_options(doc.get("options", {})), {}, "", "###")]
    lines += ["## Attributes", "", "| attribute | support | meaning |", "|---|---|---|"]
    lines += ["| `%s` | %s | %s |" % (key, value["support"], text(value)) for key, value in doc["attributes"].items()]
    for heading, key in (("Requirements", "requirements"), ("Notes", "notes")):
        if doc.get(key):
            lines += ["", "## " + heading, "", *("- " + generate.markdown(note) for note in doc[key])]
    lines += ["", "## Examples", "", "```yaml", (said["examples"] or "").strip(), "```", "", "## Result", ""]
    lines += ["| key | type | returned | meaning |", "|---|---|---|---|", *returned(said["return"] or {}, "")]
    return "\n".join(lines) + "\n"


def paragraphs(description: str | list[str]) -> Iterator[str]:
    for paragraph in description if isinstance(description, list) else [description]:
        yield generate.markdown(paragraph) + "\n"


def text(entry: dict[str, Any]) -> str:
    return generate.cell(generate.markdown(generate.description(entry)))


def as_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a module in the notation of a role's."""
    return {name: {**{key: value for key, value in option.items() if key != "suboptions"},
                   **({"options": as_options(option["suboptions"])} if option.get("suboptions") else {})}
            for name, option in options.items()}


def returned(values: dict[str, Any], level: str) -> Iterator[str]:
    for name, value in values.items():
        yield "| `%s%s` | %s | %s | %s |" % (
            level, name, generate.type_words(value), generate.cell(generate.markdown(value.get("returned") or "")),
            text(value))
        if value.get("contains"):
            mark = "[]" if value.get("type") == "list" else ""
            yield from returned(value["contains"], "%s%s%s." % (level, name, mark))


def role_page(name: str) -> str:
    """The README of a role, and what its entry points take."""
    readme = TOP / (ORIGINS["reference/roles"] % name)
    lines = [readme.read_text(encoding="utf-8"), "## Entry points", ""]
    specified = generate.loaded("roles/%s/meta/argument_specs.yml" % name)["argument_specs"]
    for entry, said in specified.items():
        # These describe data, not tasks; they have pages of their own.
        if not (TOP / "roles" / name / "tasks" / (entry + ".yml")).exists():
            continue
        lines += ["### tasks_from: %s\n" % entry, generate.markdown(said["short_description"]) + ".\n"]
        lines += paragraphs(said.get("description", []))
        if entry == "main" or said.get("options") != specified["main"].get("options"):
            lines += generate.sections(said.get("options", {}), {}, "", "####") if said.get("options") else []
        else:
            lines += ["Its options are those of `main`.\n"]
    return "\n".join(lines) + "\n"


# The links


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn the links of a page, which lead through the checkout, into those of the site."""
    source = page.file.src_uri
    folder, name = posixpath.split(source[:-len(".md")])
    origin = ORIGINS[folder] % name if folder in ORIGINS else "docs/" + source
    parts = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else LINK.sub(
        lambda found: found[1] + target(found[2], origin, source, config["repo_url"]) + found[3], part)
        for number, part in enumerate(parts))


def target(link: str, origin: str, source: str, repository: str) -> str:
    """A link of a file of the checkout as one of a page of the site; what is no page is shown in the repository."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    place, mark, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), place))
    for page, pattern in ORIGINS.items():
        found = re.fullmatch(re.escape(pattern).replace("%s", r"(\w+)"), path)
        if found:
            path = "docs/%s/%s.md" % (page, found[1])
    if path.startswith("docs/"):
        return posixpath.relpath(path[len("docs/"):], posixpath.dirname(source) or ".") + mark + anchor
    kind = "tree" if (TOP / path).is_dir() else "blob"
    return "%s/%s/main/%s%s%s" % (repository.rstrip("/"), kind, path, mark, anchor)
