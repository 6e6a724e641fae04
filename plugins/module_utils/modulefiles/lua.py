# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A description as a Lua modulefile, for Lmod 8.6 and later.

Lmod reverses a modulefile on unload by giving its functions the opposite meaning: ``setenv`` unsets, ``prepend_path``
removes, ``pushenv`` brings back what it saved. That is enough for ordinary values. It is not for these:

- ``pushenv`` keeps values as base64: it loses an empty one, damages what is not ASCII, and loses the end of one whose
  base64 form ends in a slash;
- ``prepend_path`` drops repeated and empty entries, and rewrites paths that are not in their shortest form, of the
  whole variable, and an entry that the user already had is gone after unload.

For those the file keeps the user's value under a name of its own and sets it again through Lmod's table of variables,
which an unloading modulefile reaches by no documented function. A Lmod without that table gets the ordinary way.
"""

from __future__ import annotations

import re
from typing import Mapping

from .description import (
    comment_lines,
    first_files,
    parse_value,
    search_paths,
)

_PLAIN = re.compile("[\\n\\t\\x20-\\x7e\\x80-\U0010ffff]*\\Z")

_HELPERS = r"""
local SAVED = @SAVED@

-- What the user's environment says, when the module is loaded.
local function from_environment(name)
   local value = os.getenv(name)
   if (value == nil or value == "") and mode() == "load" then
      LmodError(myModuleFullName() .. " needs the environment variable " .. name .. ", which is not set.")
   end
   return value or ""
end

-- Lmod's own table of variables: the only way to give a variable a value while unloading.
local function variables()
   local found, result = pcall(function() return require("FrameStk"):singleton():varT() end)
   return found and type(result) == "table" and result or nil
end

local function put_back(name, value)
   setenv(SAVED .. name, "")
   setenv(name, "")
   local reached, target = pcall(function() return variables()[name] end)
   if value and reached and target then target:set(value) end
end

-- Values that pushenv would not bring back as they were.
local function needs_copy(value)
   return value == "" or value:find("[\128-\255]") or (#value % 3 == 0 and value:byte(-1) % 64 == 63)
end

-- Values that Lmod does not quote cannot be given back: the shell would run the second line of one with a line break,
-- and zsh would replace =name by a program.
local function can_keep(value)
   return not value:find("\n", 1, true) and not (myShellName() == "zsh" and (":" .. value):find("[:=]="))
end

-- Set a variable (or unset it, with false) until unload brings back what the user had.
local function replace(name, value)
   local before, copy = os.getenv(name), os.getenv(SAVED .. name)
   if mode() == "unload" and copy then
      put_back(name, copy)
   elseif mode() == "load" and before and (needs_copy(before) and variables() or not can_keep(before)) then
      if can_keep(before) then setenv(SAVED .. name, before) end
      if value then setenv(name, value) else unsetenv(name) end
   else
      pushenv(name, value)
   end
end

@FIRST_FILE@local function entries_of(text)
   local entries = {}
   if text ~= "" then
      for entry in (text .. ":"):gmatch("([^:]*):") do entries[#entries + 1] = entry end
   end
   return entries
end

local function set_of(...)
   local set = {}
   for _, list in ipairs({...}) do
      for _, entry in ipairs(list) do set[entry] = true end
   end
   return set
end

-- Search paths from which prepend_path and append_path can be taken back without a trace.
local function is_reversible(text, own)
   local seen = {}
   for _, entry in ipairs(entries_of(text)) do
      local shortest = not (entry:find("//", 1, true) or (entry .. "/"):find("/%.%.?/") or entry:find("./$"))
      if seen[entry] or own[entry] or not shortest or entry:sub(1, 1) ~= "/" then return false end
      seen[entry] = true
   end
   return text ~= "" and not text:find("\n", 1, true)
end

local function joined(before, text, after, own)
   local entries = {}
   for _, entry in ipairs(before) do entries[#entries + 1] = entry end
   for _, entry in ipairs(entries_of(text)) do
      if not own[entry] then entries[#entries + 1] = entry end
   end
   for _, entry in ipairs(after) do entries[#entries + 1] = entry end
   return table.concat(entries, ":")
end

@LEFT_OF@-- Add directories before and after the user's own, until unload takes them away.
local function extend(name, before, after)
   local own, current, copy = set_of(before, after), os.getenv(name), os.getenv(SAVED .. name)
   if mode() == "unload" and copy then
      if current == joined(before, copy, after, own) then
         put_back(name, copy)
      else
@REST@
         put_back(name, rest ~= "" and rest)
      end
   elseif mode() == "load" and current and can_keep(current)
         and not is_reversible(current, own) and variables() then
      setenv(SAVED .. name, current)
      setenv(name, joined(before, current, after, own))
   else
      for i = #before, 1, -1 do prepend_path(name, before[i]) end
      for i = 1, #after do append_path(name, after[i]) end
   end
end
"""

_FIRST_FILE = r"""-- The first of some files that is there. Without any, loading fails; others are shown the last one.
-- Lmod's isFile would take a link that leads nowhere for one.
local function first_file(candidates, missing)
   for _, path in ipairs(candidates) do
      if lfs.attributes(path, "mode") == "file" then return path end
   end
   if mode() == "load" then LmodError(missing) end
   return candidates[#candidates]
end

"""

_REST = r"""         for _, entry in ipairs(entries_of(copy)) do own[entry] = nil end
         local rest = joined({}, current or "", {}, own)"""

_LEFT_OF = r"""-- What is left of a search path that was changed meanwhile, as by modules that this one depends on and
-- that go before it: entries that the user had already are put back after those that they came after.
local function left_of(current, copy, own)
   local entries, place = {}, 0
   for _, entry in ipairs(entries_of(current)) do
      if not own[entry] then entries[#entries + 1] = entry end
   end
   for _, entry in ipairs(entries_of(copy)) do
      if own[entry] then
         place = place + 1
         table.insert(entries, place, entry)
      else
         for i = place + 1, #entries do
            if entries[i] == entry then
               place = i
               break
            end
         end
      end
   end
   return table.concat(entries, ":")
end

"""

_REST_AFTER_DEPENDENCIES = '         local rest = left_of(current or "", copy, own)'


def helpers(saved: str, dependencies: bool, files: bool = False) -> str:
    """The functions that a modulefile begins with.

    Args:
        saved: prefix of the names under which the module keeps what the user had.
        dependencies: whether it depends on others. One that does not has the bytes that it always had, as a finished
            release is accepted with them.
        files: whether it chooses among files; the same holds for one that does not.
    """
    text = _HELPERS.replace("@FIRST_FILE@", _FIRST_FILE if files else "")
    text = text.replace("@LEFT_OF@", _LEFT_OF if dependencies else "")
    text = text.replace("@REST@", _REST_AFTER_DEPENDENCIES if dependencies else _REST)
    return text.replace("@SAVED@", quoted(saved))


def _first_file_lines(entry: Mapping, description: Mapping) -> list[str]:
    """The lines that set the variables of one entry of ``first_file``.

    Args:
        entry: see :func:`modulefile_description.first_files`.
        description: where reasons for the variables are looked for.
    """
    lines = ["local file = first_file({%s}, %s)" % (
        ", ".join(map(quoted, entry["candidates"])), quoted(entry["missing"]))]
    for name in entry["variables"]:
        lines.extend("-- " + reason for reason in comment_lines(description, name))
        lines.append("replace(%s, file)" % quoted(name))
    return lines


def quoted(text: str) -> str:
    """A text as a Lua string on one line, for any text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"%s"' % "".join(
        escapes.get(char, char if _PLAIN.match(char) else "\\%03d" % ord(char)) for char in text
    )


def long_text(text: str) -> str:
    """A text as a Lua string that reads as it is written, where that is possible."""
    if "\n" not in text or not _PLAIN.match(text):
        return quoted(text)
    level = ""
    while "]%s]" % level in text + "]":
        level += "="
    return "[%s[\n%s]%s]" % (level, text, level)


def value_of(text: str) -> str:
    """A value of the description as a Lua expression."""
    return " .. ".join(
        quoted(content) if kind == "text" else "from_environment(%s)" % quoted(content)
        for kind, content in parse_value(text)
    )


def render_lua(description: Mapping, header: str, saved: str) -> str:
    """The Lua modulefile of a description without faults.

    Args:
        description: normalised, see :mod:`modulefile_description`.
        header: sentences for the top of the file, one per line.
        saved: prefix of the names under which the module keeps what the user had.
    """
    lines = ["-- " + line for line in header.splitlines()]
    if description["help"]:
        lines.append("help(%s)" % long_text(description["help"]))
    lines.extend("whatis(%s)" % quoted(line) for line in whatis_lines(description))
    if description["family"]:
        lines.append("family(%s)" % quoted(description["family"]))
    lines.extend("conflict(%s)" % quoted(name) for name in description["conflicts"])
    lines.extend("depends_on(%s)" % quoted(name) for name in description["depends_on"])
    work = [(name, "replace(%s, %s)" % (quoted(name), value_of(description["setenv"][name])))
            for name in sorted(description["setenv"])]
    work.extend((name, "replace(%s, false)" % quoted(name)) for name in sorted(description["unsetenv"]))
    work.extend(
        (name, "extend(%s, {%s}, {%s})" % (
            quoted(name), ", ".join(map(value_of, before)), ", ".join(map(value_of, after))))
        for name, (before, after) in search_paths(description).items()
    )
    files = first_files(description)
    if work or files:
        lines.extend(helpers(saved, bool(description["depends_on"]), bool(files)).splitlines())
        lines.append("")
    for entry in files:
        lines.extend(_first_file_lines(entry, description))
    for name, line in work:
        # The space keeps a reason that begins with brackets from being a comment of many lines.
        lines.extend("-- " + reason for reason in comment_lines(description, name))
        lines.append(line)
    lines.extend("set_alias(%s, %s)" % (quoted(name), quoted(description["aliases"][name]))
                 for name in sorted(description["aliases"]))
    for name in sorted(description["functions"]):
        body = description["functions"][name]
        # Lmod leaves the csh half of set_shell_function behind as an empty alias.
        lines.append('if myShellType() == "csh" then')
        if body["csh"]:
            lines.append("   set_alias(%s, %s)" % (quoted(name), quoted(body["csh"])))
        lines.append("else")
        lines.append("   set_shell_function(%s, %s, %s)" % (quoted(name), quoted(body["sh"]), quoted("")))
        lines.append("end")
    if description["load_message"]:
        lines.append('if mode() == "load" then')
        lines.append("   LmodMessage(%s)" % long_text(description["load_message"]))
        lines.append("end")
    return "\n".join(lines) + "\n"


def whatis_lines(description: Mapping) -> list[str]:
    """The short lines by which ``module whatis`` and ``module keyword`` know the module."""
    lines = ["Name: %s" % description["name"], "Version: %s" % description["version"]]
    if description["category"]:
        lines.append("Category: %s" % description["category"])
    if description["keywords"]:
        lines.append("Keywords: %s" % ", ".join(description["keywords"]))
    lines.extend("%s: %s" % (key, description["whatis"][key]) for key in sorted(description["whatis"]))
    return lines
