# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the functions that a Lua modulefile begins with, as Lua text."""

from __future__ import annotations

HELPERS = r"""
local ME = @ME@

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

-- Give a variable a value, or none with false or nil, while loading and while unloading.
local function assign(name, value)
   if mode() == "load" then
      if value then setenv(name, value) else unsetenv(name) end
   else
      setenv(name, "")
      if value then variables()[name]:set(value) end
   end
end

-- Values that Lmod does not quote cannot be given back: the shell would run the second line of one with a line break,
-- and zsh would replace =name by a program.
local function can_keep(value)
   return value and not value:find("\n", 1, true) and not (myShellName() == "zsh" and (":" .. value):find("[:=]="))
end

-- What modules like this one keep of a variable, in the order of their loading: for each its name and those of modules
-- that what was there before may be from; the lengths of that and of what it set, - for nothing, and both texts.
local function layers_of(name)
   local layers, text, place = {}, os.getenv(@KEPT@ .. name) or "", 1
   while true do
      local who, from, before, given, start = text:match("^([^:,]+)([^:]*):([%d-]+):([%d-]+):()", place)
      if not who then return layers end
      local first, second = tonumber(before), tonumber(given)
      local middle = start + (first or 0)
      place = middle + (second or 0)
      layers[#layers + 1] = {
         who = who, from = from, before = first and text:sub(start, middle - 1),
         given = second and text:sub(middle, place - 1)}
   end
end

local function keep(name, layers)
   local parts = {}
   for _, layer in ipairs(layers) do
      local before, given = layer.before or "", layer.given or ""
      parts[#parts + 1] = ("%s%s:%s:%s:%s%s"):format(
         layer.who, layer.from, layer.before and #before or "-", layer.given and #given or "-", before, given)
   end
   assign(@KEPT@ .. name, parts[1] and table.concat(parts))
end

-- The text of a file, which is false for one that cannot be read. Each is read once: there are many of both, variables
-- and loaded modules. What is joined to something else is no entry of a path by itself: it loses its quote.
local texts = {}
local function text_of(path)
   if texts[path] == nil then
      local stream = io.open(path)
      texts[path] = stream and stream:read("*a"):gsub("%.%.%s*[\"']", "..") or false
      if stream then stream:close() end
   end
   return texts[path]
end

-- The loaded modules and the texts of their files; with a module, those after it. In a swap, what the environment says
-- of loaded modules is what it said before.
local function loaded_modules(start)
   local found, files, counts = {}, (os.getenv("_LMFILES_") or ""):gmatch("[^:]+"), not start
   for module in (os.getenv("LOADEDMODULES") or ""):gmatch("[^:]+") do
      local path = files() or ""
      if counts and isloaded(module) then found[#found + 1] = {name = module, text = text_of(path)} end
      counts = counts or module == start
   end
   return found
end

-- Those of some modules whose files have a pattern, each after a comma; for a file that cannot be read a text stands
-- in.
local function modules_with(pattern, instead, modules)
   local found = ""
   for _, module in ipairs(modules) do
      if (module.text or instead):find(pattern) then found = found .. "," .. module.name end
   end
   return found
end

-- The loaded modules whose files have the name of a variable.
local function setters(name)
   return modules_with("%f[%w_]" .. name .. "%f[^%w_]", name, loaded_modules())
end

-- The modules, of all or of some, whose files give a variable to a function: setenv is in unsetenv, too.
local function modules_that(command, name, modules)
   return modules_with(command .. "%W+" .. name .. "%f[^%w_]", "", modules or loaded_modules())
end

-- Those of them that were loaded after this one.
local function later_modules_that(command, name)
   return modules_that(command, name, loaded_modules(myModuleFullName()))
end

-- The layers of other modules, but for those that nobody takes away any more: of a module that is gone without its
-- unload, as where the restore of Lmod 8.6 leaves what the unload of a module has changed.
local function living_layers(name)
   local layers = {}
   for _, layer in ipairs(layers_of(name)) do
      if layer.who ~= ME and isloaded(layer.who) then layers[#layers + 1] = layer end
   end
   return layers
end

local function add_layer(name, before, given, from)
   local layers = living_layers(name)
   layers[#layers + 1] = {
      who = ME, from = from, before = can_keep(before) and before, given = can_keep(given) and given}
   keep(name, layers)
end

-- Whether what was there before is the user's, or of modules that are still loaded, and no module is that has set or
-- unset it since: one with a mark before its name.
local function is_current(layer)
   for mark, module in (layer.from or ""):gmatch("(!?)([^,]+)") do
      if isloaded(module) ~= (mark == "") then return false end
   end
   return true
end

-- This module's layer of a variable, those of the others, and the place of the next one among them.
local function own_layer(name)
   local layers = layers_of(name)
   for i, layer in ipairs(layers) do
      if layer.who == ME then return table.remove(layers, i), layers, i end
   end
   return nil, layers
end

-- Take this module's layer of a value away. The next module gets what was before this one, but where it has found what
-- others made of it since; without a next one, it was the last.
local function take_layer(name)
   local layer, layers, at = own_layer(name)
   if not layer then return nil, #layers == 0 end
   local above = layers[at]
   if above and above.before == layer.given then
      above.before, above.from = layer.before, layer.from
      if not layer.given then above.from = above.from .. later_modules_that("setenv", name):gsub(",", ",!") end
   elseif above then
      local from = ""
      for module in above.from:gmatch("[^,]+") do
         if module:sub(1, #ME + 1) ~= ME .. "/" then from = from .. "," .. module end
      end
      above.from = from
   end
   keep(name, layers)
   return layer, above == nil, layers, at
end

-- What there is without a layer that was at this place: what a later one has set alike, else what is below.
local function without(layers, at, layer)
   local instead = layers[at - 1]
   for i = at, #layers do
      if layers[i].given == layer.given then instead = layers[i] end
   end
   if instead then return instead.given end
   return is_current(layer) and layer.before
end

-- What the first pushenv of another module has kept of this one, for its own unload, becomes what is there without it.
-- Lmod 8.6 has it still, for the next pushenv, when that module is gone: then it goes.
local function replace_pushed(name, layer, given, before)
   local found, base64 = pcall(require, "base64")
   local rest, first = (os.getenv("__LMOD_STACK_" .. name) or ""):match("^(.-)([^:]+)$")
   if not (found and given and first == base64.encode64(given)) then return end
   local pushes = modules_that("pushenv", name) .. ","
   for module in (layer.from or ""):gmatch("[^,]+") do
      -- What that one has found was there before this module.
      if pushes:find("," .. module .. ",", 1, true) then return end
   end
   -- An empty one would leave nothing to take off, and Lmod ends in the middle of that module's unload.
   local kept = before and before ~= "" and base64.encode64(before) or "false"
   local stack = "__LMOD_STACK_" .. name
   assign(stack, pushes ~= "," and rest .. kept)
   if pushes ~= "," then
      -- Where Lmod unloads that module in the same command, it would take the former value apart.
      local variable = require("Var"):new(stack, rest .. kept)
      variable.type = "path"
      variables()[stack] = variable
   end
end

-- Set a variable (or unset it, with false) until unload brings back what was there before. What others made of it since
-- is left to them.
local function replace(name, value)
   local now = os.getenv(name)
   if mode() == "unload" and variables() then
      local layer, last, layers, at = take_layer(name)
      local given = value or nil
      if layer and (not value or can_keep(value)) then given = layer.given elseif not layer then layer = {} end
      if last and (now == given or value and not can_keep(value)) then
         local stays = not value and later_modules_that("setenv", name) ~= ""
         local before = is_current(layer) and not stays and layer.before
         replace_pushed(name, layer, given, before)
         -- What a later module has pushed is its own, also where it is the very same.
         if later_modules_that("pushenv", name) == "" then assign(name, before) end
      else
         replace_pushed(name, layer, given, layers and without(layers, at, layer))
      end
   elseif mode() == "load" and variables() then
      add_layer(name, now, value, now and setters(name) or "")
      if value then setenv(name, value) else unsetenv(name) end
   else
      pushenv(name, value)
   end
end

@FIRST_FILE@-- The entries of a search path as Lmod has them: each once, in its shortest form.
local function entries_of(text)
   local entries, seen = {}, {}
   for entry in (text .. ":"):gmatch("([^:]*):") do
      entry = entry:gsub("//+", "/"):gsub("/%./", "/"):gsub("/%.$", ""):gsub("(.)/$", "%1")
      if entry ~= "" and not seen[entry] then
         entries[#entries + 1] = entry
         seen[entry] = true
      end
   end
   return entries, seen
end

-- Search paths from which prepend_path and append_path can be taken back without a trace.
local function is_reversible(text, own)
   local entries = entries_of(text)
   for _, entry in ipairs(entries) do
      if own[entry] or entry:sub(1, 1) ~= "/" then return false end
   end
   return text ~= "" and table.concat(entries, ":") == text
end

-- The entries of a list that others have moved since: those of which it is known, and of the others all but the most
-- that have kept their order in another list. Of as many, those that are further in front have moved, as most modules
-- put theirs there.
local function out_of_order(former, now, known)
   local at, places, runs, best, moved = {}, {}, {}, {0, 0}, {}
   for i, entry in ipairs(now) do at[entry] = not known[entry] and i or nil end
   for _, entry in ipairs(former) do places[#places + 1] = at[entry] end
   local function is_better(one, other)
      return one[1] > other[1] or one[1] == other[1] and one[2] > other[2]
   end
   -- A run is its length, the sum of its places, its last place, and the run before that.
   for i, place in ipairs(places) do
      runs[i] = {1, place, place}
      for j = 1, i - 1 do
         local longer = {runs[j][1] + 1, runs[j][2] + place, place, runs[j]}
         if places[j] < place and is_better(longer, runs[i]) then runs[i] = longer end
      end
      if is_better(runs[i], best) then best = runs[i] end
   end
   for _, place in ipairs(places) do moved[now[place]] = true end
   for entry in pairs(known) do moved[entry] = true end
   while best and best[3] do
      moved[now[best[3]]] = nil
      best = best[4]
   end
   return moved
end

-- Where an entry goes into a list: before what came after it in another list, else after what came before it there.
-- What others have moved since does not count, which is the first of some sets; where that leaves nothing, the next.
local function place_in(order, former, at, ...)
   local places = {}
   for i, entry in ipairs(order) do places[entry] = i end
   for _, others in ipairs({...}) do
      for i = at + 1, #former do
         if places[former[i]] and not others[former[i]] then return places[former[i]] end
      end
      for i = at - 1, 1, -1 do
         if places[former[i]] and not others[former[i]] then return places[former[i]] + 1 end
      end
   end
end

-- The entries of this module that are elsewhere in a list than before it was loaded: beside what is not its own, else
-- beside each other.
local function displaced(former, first, last)
   local own, was, is, there, others, found = {}, {}, {}, {}, {}, {}
   for _, list in ipairs({first, last}) do
      for _, entry in ipairs(list) do own[entry] = true end
   end
   for i, entry in ipairs(former) do
      local list = own[entry] and there or others
      list[#list + 1], was[entry] = entry, i
   end
   for i, entry in ipairs(first) do is[entry] = i end
   for i, entry in ipairs(others) do is[entry] = #first + i end
   for i, entry in ipairs(last) do is[entry] = #first + #others + i end
   for _, entries in ipairs({others, there}) do
      local more = {}
      for _, entry in ipairs(there) do
         for _, other in ipairs(entries) do
            local is_other_way = (was[other] < was[entry]) ~= (is[other] < is[entry])
            if is_other_way and not found[other] then more[entry] = true end
         end
      end
      for entry in pairs(more) do found[entry] = true end
   end
   return found
end

-- A list with own entries where they were in another one, as far as they were there. Some have strayed, and of those
-- later modules of this kind have moved some.
local function put_back(left, former, own, strayed, moved)
   local was_there, order, now = {}, {}, {}
   for _, entry in ipairs(former) do was_there[entry] = true end
   for _, entry in ipairs(left) do
      now[entry] = #order + 1
      if not (own[entry] and was_there[entry]) then order[#order + 1] = entry end
   end
   local unsure = out_of_order(former, order, strayed)
   for i, entry in ipairs(former) do
      if own[entry] and now[entry] then
         table.insert(order, place_in(order, former, i, unsure, moved) or now[entry], entry)
      end
   end
   return order
end

-- Put own entries that are still there, as the user or another module has them too, where they were before. Where
-- nothing else has changed since then, the former text comes back as it was. Where others have moved entries since is
-- told by the text that was there when this module's entries still were.
local function give_back(name, before, own, out, moved, first, last, now_text)
   local variable = variables()[name]
   if not variable or not variable.nodups then return end
   local left, is_left = entries_of(os.getenv(name) or "")
   local former = entries_of(before)
   local at, strayed = {}, {}
   for i, entry in ipairs(entries_of(now_text or "")) do at[entry] = i end
   -- One that a later module names too is where that one wants it, and so is one that was moved beyond what was there
   -- before.
   local later = loaded_modules(myModuleFullName())
   for _, entry in ipairs(former) do
      local named = "%f[%w_]" .. name .. "%W[^\n]*%f[%w_./-]" .. entry:gsub("%W", "%%%0") .. "%f[^%w_./-]"
      if is_left[entry] and modules_with(named, "", later) ~= "" then strayed[entry] = true end
   end
   for entry, side in pairs(own) do
      for _, other in ipairs(former) do
         local stays = not (own[other] or moved[other] or strayed[other])
         if stays and at[entry] and at[other] and (at[other] - at[entry]) * side < 0 then strayed[entry] = true end
      end
   end
   for entry in pairs(strayed) do own[entry] = nil end
   -- So it is where entries of this module's own have changed places: of those in front the later one came forward, of
   -- those at the end the earlier one went behind. One that a later module of this kind or such a one has put elsewhere
   -- says nothing of the others.
   for _, list in ipairs({first, last}) do
      for i, entry in ipairs(list) do
         for j = i + 1, #list do
            local a, b = at[entry], at[list[j]]
            local gone, witness = entry, list[j]
            if list == first then gone, witness = witness, gone end
            if a and b and b < a and not (moved[witness] or strayed[witness]) then own[gone] = nil end
         end
      end
   end
   for entry in pairs(own) do own[entry] = out[entry] end
   for entry in pairs(moved) do strayed[entry] = true end
   local order = put_back(left, former, own, strayed, moved)
   local shortest = table.concat(order, ":")
   if shortest ~= table.concat(left, ":") then
      local wanted = {}
      for i, entry in ipairs(order) do wanted[entry] = i end
      -- An empty entry comes last.
      for entry, found in pairs(variable.tbl) do
         found.idxA = {{variable.imax + (wanted[entry] or #order + 1), found.idxA[1] and found.idxA[1][2] or 0}}
      end
      variable.imax = variable.imax + #order + 1
   end
   if shortest == table.concat(former, ":") then
      local expand = variable.expand
      function variable:expand()
         local text, kind, priorities, counts = expand(self)
         if table.concat(entries_of(text or ""), ":") == shortest then text = before end
         return text, kind, priorities, counts
      end
   end
   -- Taking away what is not there makes Lmod put the entries together anew.
   variable:remove("/dev/null")
end

-- Add directories before and after the user's own, until unload takes them away.
local function extend(name, before, after)
   local own, now = {}, os.getenv(name)
   for _, entry in ipairs(before) do own[entry] = 1 end
   for _, entry in ipairs(after) do own[entry] = -1 end
   if mode() == "load" and variables() then
      local kept = layers_of(name)[1]
      if now and can_keep(now) and (kept or not is_reversible(now, own)) then
         add_layer(name, now, table.concat(before, ":") .. ":" .. table.concat(after, ":"), "")
      elseif kept then
         keep(name, living_layers(name))
      end
   end
   for i = #before, 1, -1 do prepend_path(name, before[i]) end
   for i = 1, #after do append_path(name, after[i]) end
   if mode() == "unload" and variables() then
      local layer, layers, at = own_layer(name)
      if not layer then return end
      -- In what later modules have found, this one's own entries go back to where they were, too; but what one of those
      -- brings stays where that one put it.
      local former = entries_of(layer.before)
      local out, moved = displaced(former, before, after), {}
      for i = at, #layers do
         local found = entries_of(layers[i].before)
         layers[i].before = i == at and layer.before or table.concat(put_back(found, former, out, {}, {}), ":")
         for _, entry in ipairs(entries_of(layers[i].given or "")) do
            own[entry], out[entry], moved[entry] = nil, nil, true
         end
      end
      keep(name, layers)
      give_back(name, layer.before, own, out, moved, before, after, now)
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
