# programs.py - where the other programs of the project are: beside this one when installed, in its build directory otherwise.
import os
import shutil
import sys

from failure import Failure


def directories():
    """Of the project's programs."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    apps = os.path.dirname(own)
    if os.path.basename(own) == "testbed" and os.path.basename(apps) == "apps":
        return sorted(entry.path for entry in os.scandir(apps) if entry.is_dir())
    return [own]


def search_path():
    """A PATH that finds them first."""
    return os.pathsep.join([*directories(), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def find(name):
    found = shutil.which(name, path=search_path())
    if found is None:
        raise Failure(f"there is no program '{name}', neither in {', '.join(directories())} nor in PATH")
    return found
