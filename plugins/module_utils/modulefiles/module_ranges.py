# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and choose modules by ranges of versions. Pure.

``cudnn@9.1:`` is version 9.1 or newer, ``cudnn@:9`` at most 9, ``cudnn@9.1:9`` what lies between, as Environment
Modules and Spack write it. Versions are compared part by part, numbers as numbers; what begins with the upper bound
belongs to the range: 9.0.5 is at most 9. Within a range the module systems take the module that is loaded, else the
site's default, else the highest, and so does :func:`choose`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence

_RANGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._+/-]*)@([A-Za-z0-9][A-Za-z0-9._+-]*)?:([A-Za-z0-9][A-Za-z0-9._+-]*)?\Z")
_PARTS = re.compile(r"\d+|[A-Za-z]+")

LAST = ".999999999"
"""With this behind it, an upper bound takes in what begins with it: Lmod compares numbers of up to nine digits."""

Part = tuple
"""A number as ``(1, number, "")``, letters as ``(0, 0, letters)``."""


class Range(NamedTuple):
    """A module, and from which version on and up to which one; empty for no bound."""

    name: str
    low: str
    high: str

    def holds(self, version: str) -> bool:
        """Tell whether a version lies in the range."""
        found, low, high = (_parts(text) for text in (version, self.low, self.high))
        return _padded(found, low) >= _padded(low, found) and (not high or _padded(found, high)[:len(high)] <= high)

    @property
    def described(self) -> str:
        """Name it within a sentence."""
        bounds = [word % bound for word, bound in (("from %s on", self.low), ("up to %s", self.high)) if bound]
        return "%s %s" % (self.name, " and ".join(bounds))

    @property
    def is_empty(self) -> bool:
        """Tell whether no version can lie in it."""
        return bool(self.low and self.high) and not self._replace(low="").holds(self.low)


def parse(text: str) -> Range | None:
    """Return the range that a text means; None for the name of a module, and for what is neither."""
    match = _RANGE.match(text)
    if match is None or not (match.group(2) or match.group(3)):
        return None
    return Range(match.group(1), match.group(2) or "", match.group(3) or "")


def name_of(text: str) -> str:
    """Return the name of the module that a dependency means, without a version and what stands before that."""
    return name_and_path(text).partition("/")[0]


def name_and_path(text: str) -> str:
    """Return all of a module's name but its version."""
    wanted = parse(text)
    return wanted.name if wanted else text.rpartition("/")[0] or text


def lua_expression(wanted: Range) -> str:
    """Write a range as Lmod has it."""
    if not wanted.high:
        return 'atleast("%s", "%s")' % (wanted.name, wanted.low)
    return 'between("%s", "%s", "%s")' % (wanted.name, wanted.low or "0", wanted.high + LAST)


def choose(wanted: Range, loaded: Sequence[str], listed: str, default: str) -> str:
    """Return the full name of the module that a range stands for; empty where there is none.

    Args:
        loaded: full names of the modules that are loaded.
        listed: what the terse form of ``module avail`` prints of the module.
        default: what it prints of the site's default alone.
    """
    def of(names: Sequence[str]) -> list[str]:
        begin = wanted.name + "/"
        return [name for name in names if name.startswith(begin) and wanted.holds(name[len(begin):])]

    known = of([line.strip().partition("(")[0] for line in listed.splitlines()])
    marked = of([line.partition("(")[0].strip() for line in listed.splitlines() if "default" in line.partition("(")[2]])
    said = [name for name in of([line.strip().partition("(")[0] for line in default.splitlines()]) if name in known]
    highest = sorted(known, key=lambda name: _parts(name[len(wanted.name) + 1:]))
    return next(iter([*of(loaded), *marked, *said, *reversed(highest)]), "")


def _parts(version: str) -> list[Part]:
    return [(1, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in _PARTS.findall(version)]


def _padded(parts: list[Part], other: list[Part]) -> list[Part]:
    """Return a version with as many parts as another one has, by zeros: 9 is 9.0."""
    return parts + [(1, 0, "")] * (len(other) - len(parts))


TCL = r"""
# A module of a range of versions: by the module command's own words for one, where it knows these and the site has not
# switched them off; else the one that is loaded, else the site's default, else the highest one.
proc in_range {name low high} {
   global env
   if {![catch {is-avail $name@$low:$high} there] && $there} {
      return $name@$low:$high
   }
   if {[info exists env(LOADEDMODULES)]} {
      foreach module [split $env(LOADEDMODULES) ":"] {
         if {[string first $name/ $module] == 0
               && [is_between [string range $module [string length $name/] end] $low $high]} {
            return $module
         }
      }
   }
   set best ""
   foreach directory [split $env(MODULEPATH) ":"] {
      set default ""
      catch {
         set stream [open $directory/$name/.version]
         regexp {ModulesVersion\s+"?([^"\s]+)} [read $stream] -> default
         close $stream
      }
      foreach file [lsort [glob -nocomplain -tails -directory $directory/$name *]] {
         set version [regsub {\.lua$} $file ""]
         if {[file isfile $directory/$name/$file] && [is_between $version $low $high]} {
            if {$version eq $default} {
               return $name/$version
            }
            if {$best eq "" || [is_between $version $best ""]} {
               set best $version
            }
         }
      }
   }
   if {$best eq "" && [module-info mode load]} {
      error "there is no version of the module $name within $low:$high" {} MODULES_ERR_GLOBAL
   }
   # An expr would make a number of it, and 9.1 of 9.10.
   return $name/$best
}

proc is_between {version low high} {
   foreach {bound sign} [list $low -1 $high 1] {
      set own [regexp -all -inline {\d+|[A-Za-z]+} $version]
      set parts [regexp -all -inline {\d+|[A-Za-z]+} $bound]
      for {set i 0} {$i < [llength $parts] || $sign < 0 && $i < [llength $own]} {incr i} {
         # Of the shorter one, the rest is zeros.
         set one [lindex [concat $own [lrepeat [expr {$i + 1}] 0]] $i]
         set other [lindex [concat $parts [lrepeat [expr {$i + 1}] 0]] $i]
         if {[string is digit $one] && [string is digit $other]} {
            scan $one %lld one
            scan $other %lld other
            set order [expr {$one < $other ? -1 : $one > $other}]
         } elseif {[string is digit $one]} {
            set order 1
         } elseif {[string is digit $other]} {
            set order -1
         } else {
            set order [string compare -nocase $one $other]
         }
         if {$order == $sign} {
            return 0
         }
         if {$order != 0} {
            break
         }
      }
   }
   return 1
}
"""
"""The procedure ``in_range`` of a Tcl modulefile."""
