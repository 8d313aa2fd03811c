# programs.py - the places of the other programs of the project: beside this one when installed, in its build directory otherwise.
import os
import shutil
import sys

from failure import Failure


def own_file():
    """Returns the file of this program."""
    return os.path.realpath(sys.argv[0])


def directories():
    """Returns the directories of the project's programs."""
    own = os.path.dirname(own_file())
    apps = os.path.dirname(own)
    if os.path.basename(own) in ("testbed", "bench") and os.path.basename(apps) == "apps":
        return sorted(entry.path for entry in os.scandir(apps) if entry.is_dir())
    return [own]


def search_path():
    """Returns a PATH that begins with these directories."""
    return os.pathsep.join([*directories(), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def find(name):
    found = shutil.which(name, path=search_path())
    if found is None:
        raise Failure(f"there is no program '{name}', neither in {', '.join(directories())} nor in PATH")
    return found
