-- The system's spider cache, which `module avail` reads instead of the module tree.
-- It is renewed by rehearsal-module-cache, and counts as long as no file is newer than the time stamp.
scDescriptT = {
   {
      dir       = "/shared/software/lmod-cache",
      timestamp = "/shared/software/lmod-cache/timestamp",
   },
}
