"""Judge what `horovodrun --check-build` printed: its exit code is 0 whatever was built."""

import json
import re
import sys

SECTIONS = {
    "Available Frameworks": "frameworks",
    "Available Controllers": "controllers",
    "Available Tensor Operations": "operations",
}


def parse(text):
    """The names behind ticked brackets, by section.

    Returns:
        {"version": "0.28.1", "frameworks": [...], "controllers": [...], "operations": [...]}

    Raises:
        ValueError: the text is not the report, or a section is missing.
    """
    built = {}
    section = None
    for line in text.splitlines():
        title = re.match(r"Horovod v(\S+?):?$", line.strip())
        if title:
            built["version"] = title.group(1)
        heading = line.strip().rstrip(":")
        if heading in SECTIONS:
            section = built.setdefault(SECTIONS[heading], [])
        ticked = re.match(r"\s+\[([X ])\] (.+?)\s*$", line)
        if ticked and section is not None and ticked.group(1) == "X":
            section.append(ticked.group(2))
    missing = sorted(({"version"} | set(SECTIONS.values())) - set(built))
    if missing:
        raise ValueError("horovodrun --check-build printed no %s." % ", ".join(missing))
    return built


def lacking(built, expected):
    """What was expected and is not there, as "section: name" in the order of the expectation."""
    return [
        "%s: %s" % (section, name)
        for section, names in expected.items()
        for name in names
        if name not in built.get(section, [])
    ]


def main(report, expected, record):
    with open(report) as stream:
        built = parse(stream.read())
    absent = lacking(built, json.loads(expected))
    if absent:
        sys.exit("Horovod was built without %s, which the release expects." % ", ".join(absent))
    with open(record, "w") as stream:
        json.dump(built, stream, indent=2, sort_keys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
