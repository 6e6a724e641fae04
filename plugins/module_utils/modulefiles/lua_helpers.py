# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the functions that a Lua modulefile begins with, as Lua text."""

from __future__ import annotations

HELPERS = r"""
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

FIRST_FILE = r"""-- The first of some files that is there. Without any, loading fails; others are shown the last one.
-- Lmod's isFile would take a link that leads nowhere for one.
local function first_file(candidates, missing)
   for _, path in ipairs(candidates) do
      if lfs.attributes(path, "mode") == "file" then return path end
   end
   if mode() == "load" then LmodError(missing) end
   return candidates[#candidates]
end

"""

REST = r"""         for _, entry in ipairs(entries_of(copy)) do own[entry] = nil end
         local rest = joined({}, current or "", {}, own)"""

LEFT_OF = r"""-- What is left of a search path that was changed meanwhile, as by modules that this one depends on and
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
REST_AFTER_DEPENDENCIES = '         local rest = left_of(current or "", copy, own)'
