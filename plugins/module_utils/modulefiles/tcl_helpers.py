# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the procedures that a Tcl modulefile begins with, as Tcl text."""

from __future__ import annotations

HELPERS = r"""
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

FIRST_FILE = r"""# The first of some files that is there. Without any, loading fails; others are shown the last one.
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

REST = r"""      set brought {}
      foreach entry $own {
         if {[lsearch -exact [entries_of $copy] $entry] < 0} {
            lappend brought $entry
         }
      }
      put_back $name [joined {} $current {} $brought]"""

LEFT_OF = r"""# What is left of a search path that was changed meanwhile, as by modules that this one depends on and
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
REST_AFTER_DEPENDENCIES = "      put_back $name [left_of $current $copy $own]"
