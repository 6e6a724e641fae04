# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the procedures for search paths that a Tcl modulefile has, as Tcl text; they call those for values."""

from __future__ import annotations

SEARCH_PATHS = r"""proc entries_of {text} {
   return [split $text ":"]
}

# Search paths from which prepend-path and append-path can be taken back without a trace.
proc is_reversible {text own} {
   set entries [entries_of $text]
   foreach entry $entries {
      if {[string index $entry 0] ne "/" || [lsearch -exact $own $entry] >= 0} {
         return 0
      }
   }
   return [expr {$text ne "" && [llength $entries] == [llength [lsort -unique $entries]]}]
}

# Give a search path another order of the same entries, and leave the counts of who brought them.
proc reorder {name text} {
   global env
   set counts {}
   foreach share [list __MODULES_SHARE_$name ${name}_modshare] {
      if {[llength [held $share]]} {
         lappend counts $share [held $share]
      }
   }
   assign $name [list $text]
   foreach {share count} $counts {
      assign $share $count
   }
}

# Where an entry goes into a list: where the fewest of its neighbours in another list are on the wrong side, as plain
# modules may have moved some; of several such places before what came after it there, else after what came before it.
# Of an entry that is there several times, the first one counts as what came after, the last one as what came before.
# Of what later modules have moved since, only where there is nothing else.
proc place_in {order former at now moved} {
   foreach others [list $moved {}] {
      set rights {}
      set lefts {}
      foreach entry [lrange $former [expr {$at + 1}] end] {
         set found [lsearch -exact $order $entry]
         if {$found >= 0 && [lsearch -exact [concat $others [lrange $former 0 $at]] $entry] < 0} {
            lappend rights $found
         }
      }
      foreach entry [lrange $former 0 [expr {$at - 1}]] {
         set found [lindex [lsearch -all -exact $order $entry] end]
         if {$found ne "" && [lsearch -exact [concat $others [lrange $former $at end]] $entry] < 0} {
            lappend lefts [expr {$found + 1}]
         }
      }
      # Best is next to the nearest neighbour; each place beside another one is as good as what is wrong there.
      set least ""
      foreach place [concat $rights [lreverse $lefts]] {
         set wrong 0
         foreach right $rights {
            incr wrong [expr {$right < $place}]
         }
         foreach left $lefts {
            incr wrong [expr {$left > $place}]
         }
         if {$least eq "" || $wrong < $least} {
            set least $wrong
            set best $place
         }
      }
      if {$least ne ""} {
         return $best
      }
   }
   return $now
}

# The entries of this module whose place in a list is not the one any more that they had when it was loaded: beside what
# is not its own, else beside each other. Of one that was there several times, one is left.
proc displaced {former first last} {
   set own [concat $first $last]
   set now [entries_of [joined $first [join $former ":"] $last $own]]
   set there {}
   set others {}
   foreach entry $former {
      lappend [expr {[lsearch -exact $own $entry] < 0 ? "others" : "there"}] $entry
   }
   set found {}
   foreach entries [list $others $there] {
      set more {}
      foreach entry $there {
         set several [expr {[llength [lsearch -all -exact $former $entry]] > 1}]
         foreach other $entries {
            set was [expr {[lsearch -exact $former $other] < [lsearch -exact $former $entry]}]
            set is [expr {[lsearch -exact $now $other] < [lsearch -exact $now $entry]}]
            if {$several || $was != $is && [lsearch -exact $found $other] < 0} {
               lappend more $entry
               break
            }
         }
      }
      set found [concat $found $more]
   }
   return $found
}

# A list with own entries that are still there, as the user or another module has them too, where they were in another.
proc put_back {left former own moved} {
   set order {}
   foreach entry $left {
      set now($entry) [llength $order]
      if {[lsearch -exact $own $entry] < 0 || [lsearch -exact $former $entry] < 0} {
         lappend order $entry
      }
   }
   for {set i 0} {$i < [llength $former]} {incr i} {
      set entry [lindex $former $i]
      if {[lsearch -exact $own $entry] >= 0 && [info exists now($entry)]} {
         set order [linsert $order [place_in $order $former $i $now($entry) $moved] $entry]
      }
   }
   return $order
}

# Put own entries where they were before. Where nothing else has changed since then, the former text comes back as it
# was.
proc give_back {name before own moved} {
   set left [entries_of [lindex [held $name] 0]]
   set order [put_back $left [entries_of $before] $own $moved]
   if {$order ne $left} {
      reorder $name [join $order ":"]
   } elseif {$before eq "" && ![llength $left]} {
      assign $name [list ""]
   }
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

# Add directories before and after the user's own, until unload takes them away.
proc extend {name before after} {
   set own [concat $before $after]
   set now [held $name]
   set text [lindex $now 0]
   if {[loads]} {
      set layers [layers_of $name]
      if {[llength $now] && [can_keep $text] && ([llength $layers] || ![is_reversible $text $own])} {
         add_layer $name $now [list [join $own ":"]] ""
      } elseif {[llength $layers]} {
         keep $name [living_layers $name]
      }
   }
   for {set i [llength $before]} {$i > 0} {incr i -1} {
      prepend-path $name [lindex $before [expr {$i - 1}]]
   }
   foreach entry $after {
      append-path $name $entry
   }
   if {[loads]} {
      set order [joined $before $text $after $own]
      if {[lindex [held $name] 0] ne $order && [can_keep $order]} {
         reorder $name $order
      }
   } elseif {[module-info mode unload]} {
      lassign [own_layer $name] layer layers place
      if {![llength $layer]} {
         return
      }
      set kept [lindex $layer 2 0]
      set former [entries_of $kept]
      set own [displaced $former $before $after]
      # What a later module names may be gone and have come again with that one, or be moved.
      set moved {}
      foreach entry $former {
         # It stands alone there, in a list or between colons, and is not the end of another one: \x7b is a brace.
         set text [regsub -all {\W} $entry {\\&}]
         if {[llength [later_modules_with "(^|\\W)${name}\\W(\[^\n]*\[\\s\":\\x7b])?${text}(\$|\[^\\w./-])"]]} {
            lappend moved $entry
         }
      }
      # In what later modules have found, this one's own entries go back to where they were, too; but what one of those
      # brings stays where that one put it.
      for {set i $place} {$i < [llength $layers]} {incr i} {
         set order [put_back [entries_of [lindex $layers $i 2 0]] $former $own {}]
         lset layers $i 2 [list [join $order ":"]]
         foreach entry [entries_of [lindex $layers $i 3 0]] {
            lappend moved $entry
            set own [lsearch -all -inline -not -exact $own $entry]
         }
      }
      keep $name $layers
      give_back $name $kept $own $moved
   }
}
"""
