# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the procedures for values that a Tcl modulefile begins with, as Tcl text."""

from __future__ import annotations

VALUES = r"""
set me @ME@
set kept @KEPT@

# Whether a module is loaded by Environment Modules. Lmod, which reads this file too, says that it is Lmod.
proc loads {} {
   global ModuleTool
   return [expr {[module-info mode load] && !([info exists ModuleTool] && $ModuleTool eq "Lmod")}]
}

# What a variable holds, as a list of one value, or of none.
proc held {name} {
   global env
   if {![info exists env($name)]
         || ([loads] || [module-info mode unload]) && [getenv $name "\n"] eq "\n"} {
      return {}
   }
   return [list $env($name)]
}

# The same, but for a value that lives on only until the end of this run, as the module that set it was unloaded in it.
# Of such a variable Environment Modules takes no entry away; of another one it writes the counts of entries anew.
# One that is empty it would unset.
proc settled {name} {
   global env
   set now [held $name]
   if {[lindex $now 0] eq ""} {
      return $now
   }
   set shares [list __MODULES_SHARE_$name ${name}_modshare]
   foreach share $shares {
      set env($share) "?"
   }
   if {[module-info mode unload]} {
      prepend-path -d "\n" $name "not there"
   } else {
      remove-path -d "\n" $name "not there"
   }
   foreach share $shares {
      if {[info exists env($share)] && $env($share) eq "?"} {
         unset env($share)
      } else {
         set counted 1
         assign $share {}
      }
   }
   if {[info exists counted]} {
      return $now
   }
}

# What the user's environment says, when the module is loaded.
proc from_environment {name} {
   set value [lindex [held $name] 0]
   if {$value eq "" && [module-info mode load]} {
      error "the environment variable $name is needed and is not set"
   }
   return $value
}

# Give a variable a value, or none with an empty list, while loading and while unloading.
proc assign {name value} {
   global env
   if {[module-info mode unload] && [lindex $value 0] eq ""} {
      setenv $name ""
      unset -nocomplain env($name)
   }
   if {[module-info mode unload] && [llength $value]} {
      unsetenv $name [lindex $value 0]
   } elseif {[loads] && [llength $value]} {
      setenv $name [lindex $value 0]
   } elseif {[loads] && [llength [held $name]]} {
      unsetenv $name
   }
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

proc kept_of {value} {
   if {[llength $value] && [can_keep [lindex $value 0]]} {
      return $value
   }
}

# What modules like this one keep of a variable, in the order of their loading: for each its name and those of modules
# that what was there before may be from; the lengths of that and of what it set, - for nothing, and both texts.
proc layers_of {name} {
   global kept
   set layers {}
   set text [lindex [held $kept$name] 0]
   while {[regexp {^([^:,]+)([^:]*):(\d+|-):(\d+|-):(.*)$} $text -> who from first second text]} {
      set layer [list $who $from]
      foreach length [list $first $second] {
         if {$length eq "-"} {
            lappend layer {}
         } else {
            lappend layer [list [string range $text 0 [expr {$length - 1}]]]
            set text [string range $text $length end]
         }
      }
      lappend layers $layer
   }
   return $layers
}

proc keep {name layers} {
   global kept
   set text ""
   foreach layer $layers {
      lassign $layer who from before given
      append who $from
      foreach value [list $before $given] {
         append who ":" [expr {[llength $value] ? [string length [lindex $value 0]] : "-"}]
      }
      append text $who ":" [lindex $before 0] [lindex $given 0]
   }
   if {$text eq ""} {
      assign $kept$name {}
   } else {
      assign $kept$name [list $text]
   }
}

# The loaded modules, all or from a place on, whose files have a pattern; of a file that cannot be read, a text stands
# in. Each is read once: there are many of both, variables and loaded modules.
proc modules_with {pattern instead {place 0}} {
   global texts
   set found {}
   set files [lrange [split [lindex [held _LMFILES_] 0] ":"] $place end]
   foreach module [lrange [split [lindex [held LOADEDMODULES] 0] ":"] $place end] file $files {
      if {![info exists texts($file)]} {
         set texts($file) {}
         catch {
            set stream [open $file]
            set texts($file) [list [read $stream]]
            close $stream
         }
      }
      set text [expr {[llength $texts($file)] ? [lindex $texts($file) 0] : $instead}]
      if {[regexp $pattern $text]} {
         lappend found $module
      }
   }
   return $found
}

# The loaded modules whose files have the name of a variable, each after a comma.
proc setters {name} {
   return [join [concat {{}} [modules_with "(^|\\W)${name}(\\W|\$)" $name]] ","]
}

# The modules that were loaded after this one and whose files have a pattern.
proc later_modules_with {pattern} {
   set loaded [split [lindex [held LOADEDMODULES] 0] ":"]
   set mine [lsearch -exact $loaded [module-info name]]
   return [modules_with $pattern "" [expr {$mine + 1}]]
}

# Those of them whose files give a variable to a command: setenv is in unsetenv, too.
proc later_modules_that {command name} {
   return [later_modules_with "${command}\\W+${name}(\\W|\$)"]
}

# The layers of other modules, but for those that nobody takes away any more: of a module that is gone without its
# unload.
proc living_layers {name} {
   global me
   set layers {}
   foreach layer [layers_of $name] {
      set who [lindex $layer 0]
      if {$who ne $me && [is-loaded $who]} {
         lappend layers $layer
      }
   }
   return $layers
}

proc add_layer {name before given from} {
   global me
   keep $name [concat [living_layers $name] [list [list $me $from [kept_of $before] [kept_of $given]]]]
}

# Whether what was there before is the user's, or of modules that are still loaded, and no module is that has set or
# unset it since: one with a mark before its name.
proc is_current {from} {
   foreach module [lrange [split $from ","] 1 end] {
      if {[string match "!*" $module] == [is-loaded [string trimleft $module "!"]]} {
         return 0
      }
   }
   return 1
}

# This module's layer of a variable, those of the others, and the place of the next one among them.
proc own_layer {name} {
   global me
   set layers [layers_of $name]
   set place [lsearch -exact -index 0 $layers $me]
   if {$place < 0} {
      return [list {} $layers [llength $layers]]
   }
   return [list [lindex $layers $place] [lreplace $layers $place $place] $place]
}

# Take this module's layer of a value away, and return what it kept with whether it was the last one. The next module
# gets what was before this one, but where it has found what others made of it since.
proc take_layer {name} {
   global me
   lassign [own_layer $name] layer layers place
   if {![llength $layer]} {
      return [list {} {} {} [expr {[llength $layers] == 0}]]
   }
   lassign $layer who from before given
   if {$place < [llength $layers]} {
      if {[lindex $layers $place 2] eq $given} {
         if {![llength $given]} {
            append from [join [concat {{}} [later_modules_that setenv $name]] ",!"]
         }
         lset layers $place 1 $from
         lset layers $place 2 $before
      } else {
         set others [lsearch -all -inline -not -glob [split [lindex $layers $place 1] ","] $me/*]
         lset layers $place 1 [join $others ","]
      }
   }
   keep $name $layers
   return [list $from $before $given [expr {$place == [llength $layers]}]]
}

# What the first pushenv after this module has kept of it, for its own unload, becomes what is there without it. What a
# pushenv before this module had kept is gone, as a variable that is set has none. Of a value with a colon a part would
# come back.
proc replace_pushed {name given before} {
   set stack [lindex [held __MODULES_PUSHENV_$name] 0]
   set pushed ":&[lindex $given 0]"
   set start [expr {[string length $stack] - [string length $pushed]}]
   if {[llength $given] && $start > 0 && [string range $stack $start end] eq $pushed} {
      set stack [string range $stack 0 [expr {$start - 1}]]
      if {[llength $before] && ![string match *:* [lindex $before 0]]} {
         append stack ":&" [lindex $before 0]
      }
      assign __MODULES_PUSHENV_$name [kept_of [list $stack]]
   }
}

# Set a variable until unload brings back what was there before. What others made of it since is left to them.
proc replace {name value} {
   change $name [list $value]
}

# Take a variable away until unload brings it back.
proc without {name} {
   change $name {}
}

proc change {name value} {
   if {[module-info mode unload]} {
      lassign [take_layer $name] from before given last
      if {[llength $value] && ![can_keep [lindex $value 0]]} {
         set given [held $name]
      }
      if {![is_current $from]} {
         set before {}
      }
      if {!$last} {
         return
      }
      replace_pushed $name $given $before
      # What a later module has pushed is its own, also where it is the very same.
      if {![llength [later_modules_that pushenv $name]] && [settled $name] eq $given} {
         if {![llength $value] && [llength [later_modules_that setenv $name]]} {
            set before {}
         }
         assign $name $before
      }
      return
   }
   if {[loads]} {
      set now [settled $name]
      if {[llength $now]} {
         add_layer $name $now $value [setters $name]
      } else {
         add_layer $name {} $value ""
      }
   }
   if {[llength $value]} {
      setenv $name [lindex $value 0]
   } else {
      unsetenv $name
   }
}

# Version 4 exports a function as a variable too, which stays behind in zsh; pushenv tells version 5 from it.
proc can_define {} {
   return [expr {[llength [info commands set-function]]
      && (![module-info shell zsh] || [llength [info commands pushenv]])}]
}

@FIRST_FILE@"""

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
