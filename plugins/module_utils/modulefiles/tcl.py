# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A description as a Tcl modulefile, for Environment Modules 4 and 5.

Environment Modules reverses a modulefile on unload: ``setenv`` unsets, ``prepend-path`` removes, and ``unsetenv NAME
VALUE`` sets. The file keeps what the user had under a name of its own and gives it back by the latter. ``pushenv``
(5.1 and later) is not used: it keeps its stack as one colon-separated variable, and a value with a colon in it, such
as any address of a proxy, comes back cut off at the colon.
"""

from __future__ import annotations

from typing import Mapping

from .description import (
    comment_lines,
    first_files,
    parse_value,
    search_paths,
)
from .lua import whatis_lines

_ESCAPES = {char: "\\" + char for char in '\\"$[]{}'}
_ESCAPES.update({"\n": "\\n", "\t": "\\t"})

_HELPERS = r"""
set saved @SAVED@

# What the user's environment says, when the module is loaded.
proc from_environment {name} {
   global env
   if {[info exists env($name)] && $env($name) ne ""} {
      return $env($name)
   }
   if {[module-info mode load]} {
      error "the environment variable $name is needed and is not set"
   }
   return ""
}

# While unloading: give a variable the value that it had.
proc put_back {name value} {
   global saved
   setenv $saved$name ""
   forget $saved$name
   unsetenv $name $value
}

# While unloading, Environment Modules lets a variable that it takes away live on for the rest of its run. In a switch
# the next modulefile would take it for the user's.
proc forget {name} {
   global env
   if {[module-info mode unload] && [info exists env($name)]} {
      unset env($name)
   }
}

# Set a variable until unload brings back what the user had.
proc replace {name value} {
   global env saved
   if {[module-info mode unload] && [info exists env($saved$name)]} {
      put_back $name $env($saved$name)
      return
   }
   keep $name
   setenv $name $value
   forget $name
}

# Take a variable away until unload brings it back.
proc without {name} {
   global env saved
   if {[module-info mode unload]} {
      if {[info exists env($saved$name)]} {
         put_back $name $env($saved$name)
      }
      return
   }
   keep $name
   unsetenv $name
}

# Values that the module command does not quote cannot be given back: the shell would run the second line of one with a
# line break, replace ~ by a home directory and, in zsh, =name by a program or, in csh, brackets by file names.
proc can_keep {value} {
   if {[regexp {\n|(^|[:=])~} $value]} {
      return 0
   }
   switch -- [module-info shell] {
      zsh {
         return [expr {![regexp {(^|[:=])=} $value]}]
      }
      csh - tcsh {
         return [expr {![regexp {[\[\]]} $value]}]
      }
   }
   return 1
}

proc keep {name} {
   global env saved
   if {[module-info mode load] && [info exists env($name)] && [can_keep $env($name)]} {
      setenv $saved$name $env($name)
   }
}

# Version 4 exports a function as a variable too, which stays behind in zsh; pushenv tells version 5 from it.
proc can_define {} {
   return [expr {[llength [info commands set-function]]
      && (![module-info shell zsh] || [llength [info commands pushenv]])}]
}

@FIRST_FILE@proc entries_of {text} {
   return [split $text ":"]
}

# Search paths from which prepend-path and append-path can be taken back without a trace.
proc is_reversible {text own} {
   set entries [entries_of $text]
   foreach entry $entries {
      if {[string index $entry 0] ne "/" || [regexp {//|/\.\.?(/|$)|./$} $entry] || [lsearch -exact $own $entry] >= 0} {
         return 0
      }
   }
   return [expr {$text ne "" && [llength $entries] == [llength [lsort -unique $entries]]}]
}

proc joined {before text after own} {
   set entries $before
   foreach entry [entries_of $text] {
      if {[lsearch -exact $own $entry] < 0} {
         lappend entries $entry
      }
   }
   return [join [concat $entries $after] ":"]
}

@LEFT_OF@# Add directories before and after the user's own, until unload takes them away.
proc extend {name before after} {
   global env saved
   set own [concat $before $after]
   set current ""
   if {[info exists env($name)]} {
      set current $env($name)
   }
   if {[module-info mode unload] && [info exists env($saved$name)]} {
      set copy $env($saved$name)
      if {$current eq [joined $before $copy $after $own]} {
         put_back $name $copy
         return
      }
@REST@
      return
   }
   if {[module-info mode load] && [info exists env($name)] && [can_keep $current]
         && ![is_reversible $current $own]} {
      keep $name
      setenv $name [joined $before $current $after $own]
      return
   }
   for {set i [llength $before]} {$i > 0} {incr i -1} {
      prepend-path $name [lindex $before [expr {$i - 1}]]
   }
   foreach entry $after {
      append-path $name $entry
   }
   if {[info exists env($name)] && $env($name) eq ""} {
      forget $name
   }
}
"""

_FIRST_FILE = r"""# The first of some files that is there. Without any, loading fails; others are shown the last one.
# By the code of the error, Environment Modules tells the sentence alone, and not the calls that led to it.
proc first_file {candidates missing} {
   foreach path $candidates {
      if {[file isfile $path]} {
         return $path
      }
   }
   if {[module-info mode load]} {
      error $missing {} MODULES_ERR_GLOBAL
   }
   return [lindex $candidates end]
}

"""

_REST = r"""      set brought {}
      foreach entry $own {
         if {[lsearch -exact [entries_of $copy] $entry] < 0} {
            lappend brought $entry
         }
      }
      put_back $name [joined {} $current {} $brought]"""

_LEFT_OF = r"""# What is left of a search path that was changed meanwhile, as by modules that this one depends on and
# that version 4 takes away before it: entries that the user had already are put back after those that they came after.
proc left_of {current copy own} {
   set entries {}
   foreach entry [entries_of $current] {
      if {[lsearch -exact $own $entry] < 0} {
         lappend entries $entry
      }
   }
   set place 0
   foreach entry [entries_of $copy] {
      if {[lsearch -exact $own $entry] >= 0} {
         set entries [linsert $entries $place $entry]
         incr place
      } elseif {[set found [lsearch -exact -start $place $entries $entry]] >= 0} {
         set place [expr {$found + 1}]
      }
   }
   return [join $entries ":"]
}

"""

_REST_AFTER_DEPENDENCIES = "      put_back $name [left_of $current $copy $own]"


def helpers(saved: str, dependencies: bool, files: bool = False) -> str:
    """The procedures that a modulefile begins with; see :func:`modulefile_lua.helpers`."""
    text = _HELPERS.replace("@FIRST_FILE@", _FIRST_FILE if files else "")
    text = text.replace("@LEFT_OF@", _LEFT_OF if dependencies else "")
    text = text.replace("@REST@", _REST_AFTER_DEPENDENCIES if dependencies else _REST)
    return text.replace("@SAVED@", saved)


def _first_file_lines(entry: Mapping, description: Mapping) -> list[str]:
    """The lines that set the variables of one entry; see its namesake in :mod:`modulefile_lua`."""
    lines = ["set file [first_file [list %s] %s]" % (
        " ".join(map(quoted, entry["candidates"])), quoted(entry["missing"]))]
    for name in entry["variables"]:
        lines.extend("# " + reason for reason in comment_lines(description, name))
        lines.append("replace %s $file" % name)
    return lines


def quoted(text: str) -> str:
    """A text as one Tcl word on one line, for any text.

    Braces are escaped too, because Tcl counts them in a body before it looks at quotes.
    """
    return '"%s"' % "".join(
        _ESCAPES.get(char, char if char >= " " and char != "\x7f" else "\\%03o" % ord(char)) for char in text
    )


def value_of(text: str) -> str:
    """A value of the description as one Tcl word."""
    return '"%s"' % "".join(
        quoted(content)[1:-1] if kind == "text" else "[from_environment %s]" % content
        for kind, content in parse_value(text)
    )


def render_tcl(description: Mapping, header: str, saved: str) -> str:
    """The Tcl modulefile of a description without faults.

    Args:
        description: normalised, see :mod:`modulefile_description`.
        header: sentences for the top of the file, one per line.
        saved: prefix of the names under which the module keeps what the user had.
    """
    lines = ["#%Module1.0"]
    lines.extend("# " + line for line in header.splitlines())
    if description["help"]:
        lines.append("proc ModulesHelp {} {")
        lines.extend("   puts stderr %s" % quoted(line) for line in description["help"].splitlines())
        lines.append("}")
    lines.extend("module-whatis %s" % quoted(line) for line in whatis_lines(description))
    lines.append("conflict %s" % quoted(description["name"]))
    if description["family"]:
        lines.append("if {[llength [info commands family]]} {")
        lines.append("   family %s" % quoted(description["family"]))
        lines.append("} else {")
        lines.append("   conflict %s" % quoted(description["family"]))
        lines.append("}")
    lines.extend("conflict %s" % quoted(name) for name in description["conflicts"])
    lines.extend("module load %s" % quoted(name) for name in description["depends_on"])
    work = [(name, "replace %s %s" % (name, value_of(description["setenv"][name])))
            for name in sorted(description["setenv"])]
    work.extend((name, "without %s" % name) for name in sorted(description["unsetenv"]))
    work.extend(
        (name, "extend %s [list%s] [list%s]" % (
            name, "".join(" " + value_of(value) for value in before),
            "".join(" " + value_of(value) for value in after)))
        for name, (before, after) in search_paths(description).items()
    )
    files = first_files(description)
    if work or files or description["functions"]:
        lines.extend(helpers(saved, bool(description["depends_on"]), bool(files)).splitlines())
        lines.append("")
    for entry in files:
        lines.extend(_first_file_lines(entry, description))
    for name, line in work:
        lines.extend("# " + reason for reason in comment_lines(description, name))
        lines.append(line)
    lines.extend("set-alias %s %s" % (name, quoted(description["aliases"][name]))
                 for name in sorted(description["aliases"]))
    for name in sorted(description["functions"]):
        body = description["functions"][name]
        lines.append('if {[module-info shelltype csh]} {')
        if body["csh"]:
            lines.append("   set-alias %s %s" % (name, quoted(body["csh"])))
        lines.append("} elseif {[can_define]} {")
        lines.append("   set-function %s %s" % (name, quoted(body["sh"])))
        lines.append("}")
    if description["load_message"]:
        lines.append("if {[module-info mode load]} {")
        lines.extend("   puts stderr %s" % quoted(line) for line in description["load_message"].splitlines())
        lines.append("}")
    return "\n".join(lines) + "\n"
