# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make users' virtual environments load the module of a release when they are activated.

Called by bin/extend-venv-activate of a release, with what it has to know of the release as its first argument.
For any Python since 3.6.
"""

import argparse
import json
import os
import re
import shlex
import stat
import sys
import tempfile

BEGIN = "# >>> extend-venv-activate >>>"
END = "# <<< extend-venv-activate <<<"

LOAD = r"""
@BEGIN@
# This environment extends the module @MODULE@: it is loaded here, and unloaded by deactivate if it was loaded here.
# Written by @COMMAND@; with --remove it takes these lines out again.
_torchstack_why=
case ":${LOADEDMODULES:-}:" in
    *:@MODULE@:*) ;;
    *)
        if [ -n "${LMOD_VERSION:-}${LMOD_CMD:-}" ] ; then
            _torchstack_from=@LMOD@
        else
            _torchstack_from=@TCL@
        fi
        case ":${MODULEPATH:-}:" in
            *:"$_torchstack_from":*) _torchstack_from= ;;
            *) [ -d "$_torchstack_from" ] || _torchstack_from= ;;
        esac
        if command -v module > /dev/null 2>&1 ; then
            # First in a shell that ends with it: a load that fails, or takes another module away, changes nothing here.
            _torchstack_why=$(
                before=${LOADEDMODULES:+$LOADEDMODULES:}
                if [ -n "$_torchstack_from" ] ; then
                    module use -a "$_torchstack_from" > /dev/null 2>&1 || true
                fi
                module load @MODULE@ > /dev/null 2>&1 || true
                case ":${LOADEDMODULES:-}:" in
                    (*:@MODULE@:*) ;;
                    (*) before= ; echo "the module @MODULE@ cannot be loaded (module load @MODULE@ says why)" ;;
                esac
                while [ -n "$before" ] ; do
                    case ":${LOADEDMODULES:-}:" in
                        (*:"${before%%:*}":*) before=${before#*:} ;;
                        (*) echo "the module @MODULE@ would replace ${before%%:*}; unload that first" ; break ;;
                    esac
                done
            )
        else
            _torchstack_why="this shell has no command module to load @MODULE@ with"
        fi
        if [ -z "$_torchstack_why" ] ; then
            if [ -n "$_torchstack_from" ] ; then
                _OLD_VIRTUAL_MODULEPATH=$_torchstack_from
                module use -a "$_torchstack_from" > /dev/null 2>&1 || true
            fi
            _OLD_VIRTUAL_MODULE=@MODULE@
            _OLD_VIRTUAL_MODULE_PATH=$PATH
            module load @MODULE@ || _torchstack_why="the module @MODULE@ cannot be loaded"
        fi
        unset _torchstack_from
        ;;
esac
if [ -n "$_torchstack_why" ] ; then
    printf '%s is not activated: %s.\n' @VENV@ "$_torchstack_why" >&2
    unset _torchstack_why
    deactivate ''
    return 1
fi
unset _torchstack_why
@END@
"""

UNLOAD = r"""
    @BEGIN@
    if [ -n "${_OLD_VIRTUAL_MODULE:-}" ] ; then
        case ":${LOADEDMODULES:-}:" in
            *:"$_OLD_VIRTUAL_MODULE":*) module unload "$_OLD_VIRTUAL_MODULE" > /dev/null 2>&1 || true ;;
            # It was unloaded by hand, and the PATH that is back now still leads to it.
            *) PATH=$_OLD_VIRTUAL_MODULE_PATH ;;
        esac
        unset _OLD_VIRTUAL_MODULE _OLD_VIRTUAL_MODULE_PATH
    fi
    if [ -n "${_OLD_VIRTUAL_MODULEPATH:-}" ] ; then
        module unuse "$_OLD_VIRTUAL_MODULEPATH" > /dev/null 2>&1 || true
        unset _OLD_VIRTUAL_MODULEPATH
    fi
    @END@
"""

# What the activate of venv and of virtualenv has once each, in this order: the function, its last part, where all is
# as before, and the call that undoes a former activation.
FUNCTION = re.compile(r"^deactivate ?\(\) ?\{$", re.M)
RESTORED = re.compile(r'^[ \t]*if \[ ! "\$\{?1(:?-)?\}?" = "nondestructive" \] ?; ?then$', re.M)
UNDONE = re.compile(r"^deactivate nondestructive\n", re.M)

# What a script of a site that this command replaces has put in, as often as it was called.
FORMER_LOAD = re.compile(
    r"\n\nmodule (?:-s )?load \S+\n\nPYTHONUSERSITEPKGS=.*\nif \[\[ .*PYTHONUSERSITEPKGS.* \]\]; then\n"
    r"[ \t]*export PYTHONPATH=.*PYTHONUSERSITEPKGS.*\nfi\n\n"
)
FORMER_UNLOAD = re.compile(
    r"\n\n[ \t]*export PYTHONPATH=`.*PYTHONUSERSITEPKGS.*`\n[ \t]*module (?:-s )?unload \S+"
)
FOREIGN = re.compile(r"^[^#\n]*(?:\bmodule[ \t]+(?:-\S+[ \t]+)*(?:un)?load\b|PYTHONUSERSITEPKGS).*", re.M)

BLOCK = re.compile(r"^[ \t]*%s\n(?:.*\n)*?[ \t]*%s\n" % (re.escape(BEGIN), re.escape(END)), re.M)


class Refused(Exception):
    """A virtual environment that is left as it is, and why."""


def without_edits(text):
    """An activate script as it was before this command, or the site's former script, changed it.

    Args:
        text: the script as it is.

    Returns:
        The text, and whether the former script had changed it.

    Raises:
        Refused: it was changed by something else.
    """
    plain = BLOCK.sub("", text)
    if BEGIN in plain or END in plain:
        raise Refused("in its bin/activate, one of the marks of extend-venv-activate has lost its other half")
    rest = FORMER_UNLOAD.sub("", FORMER_LOAD.sub("", plain))
    foreign = FOREIGN.search(rest)
    if foreign:
        raise Refused("its bin/activate has the line '%s' of somebody else" % foreign.group().strip())
    return rest, rest != plain


def with_edits(text, release, venv):
    """An activate script that loads and unloads the module.

    Args:
        text: the script as venv or virtualenv wrote it.
        release: what the command knows of its release.
        venv: path of the virtual environment.

    Raises:
        Refused: it is not as venv or virtualenv write it.
    """
    found = [list(pattern.finditer(text)) for pattern in (FUNCTION, RESTORED, UNDONE)]
    if any(len(matches) != 1 for matches in found):
        raise Refused("its bin/activate is not what venv or virtualenv write")
    function, restored, undone = (matches[0] for matches in found)
    if not function.start() < restored.start() < undone.start():
        raise Refused("its bin/activate is not what venv or virtualenv write")
    values = {
        "BEGIN": BEGIN, "END": END, "MODULE": release["module"], "COMMAND": release["command"],
        "LMOD": shlex.quote(release["module_paths"]["lmod"]), "TCL": shlex.quote(release["module_paths"]["tcl"]),
        "VENV": shlex.quote(venv),
    }

    def filled(block):
        return re.sub("@([A-Z]+)@", lambda match: values[match.group(1)], block[1:])

    return "".join((
        text[:restored.start()], filled(UNLOAD), text[restored.start():undone.end()], filled(LOAD), text[undone.end():],
    ))


def settings_of(venv):
    """The keys and values of a virtual environment's pyvenv.cfg, keys in lower case.

    Raises:
        Refused: it has none.
    """
    try:
        with open(os.path.join(venv, "pyvenv.cfg"), encoding="utf-8", errors="surrogateescape") as stream:
            pairs = (line.partition("=") for line in stream)
            return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
    except OSError as error:
        raise Refused("it is no virtual environment (pyvenv.cfg: %s)" % error.strerror) from error


def check_python(settings, release):
    """Refuse an environment whose Python would not see the release's packages.

    Args:
        settings: of its pyvenv.cfg.
        release: what the command knows of its release.

    Raises:
        Refused: its Python is another one.
    """
    version = settings.get("version") or settings.get("version_info", "")
    minor = ".".join(version.split(".")[:2])
    if minor != release["minor"]:
        raise Refused("its Python is %s, that of %s is %s" % (minor or "unknown", release["module"], release["minor"]))
    home = settings.get("home", "")
    if release["home"] and os.path.realpath(home) != os.path.realpath(release["home"]):
        raise Refused("it was made by the Python in %s and not by the one of %s in %s" % (
            home or "an unknown place", release["module"], release["home"]))


class Plan:
    """What would be done to one virtual environment.

    Args:
        venv: its path as the user gave it.
        release: what the command knows of its release.
        remove: whether it is to be as before.

    Raises:
        Refused: it is left as it is.
    """

    def __init__(self, venv, release, remove):
        self.venv = venv
        self.remove = remove
        self.module = release["module"]
        place = os.path.realpath(venv)
        settings = settings_of(place)
        self.path = os.path.realpath(os.path.join(place, "bin", "activate"))
        try:
            with open(self.path, encoding="utf-8", errors="surrogateescape", newline="") as stream:
                self.before = stream.read()
        except OSError as error:
            raise Refused("its bin/activate cannot be read (%s)" % error.strerror) from error
        self.after, self.former = without_edits(self.before)
        if not remove:
            self.after = with_edits(self.after, release, place)
            check_python(settings, release)
        beside = sorted(os.listdir(os.path.dirname(self.path)))
        self.others = [name for name in beside if name in ("activate.csh", "activate.fish", "activate.nu")]

    @property
    def changed(self):
        """Whether there is anything to do."""
        return self.before != self.after

    def carry_out(self):
        """Put the new text in place of the old one, at once.

        Raises:
            Refused: the system does not let it.
        """
        directory = os.path.dirname(self.path)
        scratch = ""
        try:
            known = os.stat(self.path)
            handle, scratch = tempfile.mkstemp(prefix=".activate-", dir=directory)
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(self.after)
                stream.flush()
                if os.geteuid() == 0:
                    os.fchown(handle, known.st_uid, known.st_gid)
                os.fchmod(handle, stat.S_IMODE(known.st_mode))
                os.fsync(handle)
            os.rename(scratch, self.path)
        except OSError as error:
            if scratch and os.path.exists(scratch):
                os.unlink(scratch)
            raise Refused("%s cannot be written (%s)" % (self.path, error.strerror)) from error

    def sentence(self, check):
        """What is or would be the case, on one line that begins with ``ok`` or ``changed``."""
        said = "ok"
        if self.changed:
            said = "changed (not yet: --check)" if check else "changed"
        said += ": %s " % self.venv
        said += "loads no module when it is activated" if self.remove else "loads %s when it is activated" % self.module
        if self.former:
            said += "; the lines of a former script are taken out"
        if self.others and not self.remove:
            said += "; %s %s not changed: in such a shell, load and unload it by hand" % (
                ", ".join(self.others), "is" if len(self.others) == 1 else "are")
        return said + "."


def main(arguments):
    """Run the command.

    Args:
        arguments: what the command knows of its release, as JSON, and the words of the user.

    Returns:
        The exit status: 0 for success; 1 where --check found something to do; 2 where an environment was refused.
    """
    release = json.loads(arguments[0])
    parser = argparse.ArgumentParser(
        prog="extend-venv-activate", description=(
            "Make virtual environments load the module %s when they are activated, and unload it when they are "
            "deactivated. Doing so again changes nothing." % release["module"]))
    parser.add_argument("--check", action="store_true", help="say what would be done; exit with 1 if it is anything")
    parser.add_argument("--remove", action="store_true", help="make them load no module any more")
    parser.add_argument("venv", nargs="+", help="directory of a virtual environment")
    options = parser.parse_args(arguments[1:])
    plans = []
    try:
        for venv in options.venv:
            plans.append(Plan(venv, release, options.remove))
        for plan in plans:
            if plan.changed and not options.check:
                venv = plan.venv
                plan.carry_out()
            print(plan.sentence(options.check))
    except Refused as error:
        print("extend-venv-activate: %s is left as it is: %s." % (venv, error), file=sys.stderr)
        return 2
    return 1 if options.check and any(plan.changed for plan in plans) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
