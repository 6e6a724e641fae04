# shellcheck shell=sh
# The commands of PBS, as the site's profile has them.
PATH=/opt/pbs/bin:$PATH
export PATH
