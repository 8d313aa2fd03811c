# state.py - the parts of a testbed, in one directory for all testbeds of a user, so that any shell finds them.
#
#   /run/unet-testbed/NAME/state.json   (root; others: $XDG_RUNTIME_DIR/unet-testbed or /tmp/unet-testbed-UID)
#   /run/unet-testbed/NAME.lock         locked while a process makes or removes NAME; the file goes with the testbed
#
# The names of all parts follow from the testbed's name, and state.json is written before the first part is made. `down` therefore always
# knows where to look.
import contextlib
import fcntl
import json
import os
import re
import shutil
import stat

from failure import Failure, Usage

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def check_name(name):
    if not NAME.fullmatch(name):
        raise Usage(f"--name '{name}': 1 to 32 of A-Z a-z 0-9 _ -, the first no sign")
    return name


def base():
    if os.geteuid() == 0:
        return "/run/unet-testbed"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/unet-testbed" if runtime else f"/tmp/unet-testbed-{os.geteuid()}"


def make_base():
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(base(), 0o700)
    except OSError as error:
        raise Failure(f"{base()} cannot be made ({error.strerror}). Root of a user namespace alone needs a /run of its own: "
                      "mount -t tmpfs run /run") from None
    found = os.lstat(base())
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Failure(f"{base()} is not a directory of yours alone: remove it")


def directory(name):
    return os.path.join(base(), name)


held = []  # descriptors of locks of this process


@contextlib.contextmanager
def locked(name, wait):
    """Locks `name` to make or remove it. With `wait`, waits for a process that does so now; otherwise fails."""
    path = directory(name) + ".lock"
    while True:
        make_base()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # another process removed the last testbed, and the directory with it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            raise Failure(f"testbed '{name}' is being made or removed by another process") from None
        except BaseException:
            os.close(descriptor)
            raise
        if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            break
        os.close(descriptor)  # the file belonged to a removed testbed
    held.append(descriptor)
    try:
        yield
    finally:
        held.remove(descriptor)
        if not os.path.exists(directory(name)):
            os.unlink(path)
            with contextlib.suppress(OSError):
                os.rmdir(base())
        os.close(descriptor)


def save(state):
    path = os.path.join(directory(state["name"]), "state.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file, indent=2)
    os.replace(path + ".new", path)


def create(state):
    os.mkdir(directory(state["name"]), 0o700)
    save(state)


def load(name):
    """Returns None if there is no such testbed."""
    try:
        with open(os.path.join(directory(name), "state.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        # create() was killed between its two lines: no part was made.
        return {"name": name, "hosts": [], "complete": False} if os.path.isdir(directory(name)) else None
    except (OSError, ValueError) as error:
        raise Failure(f"{directory(name)}/state.json cannot be read: {error}") from None


def load_complete(name):
    state = load(name)
    if state is None:
        others = names()
        there = f"; there are: {', '.join(others)} (--name)" if others else f"; make it: testbed up{option(name)} -n 2"
        raise Failure(f"there is no testbed '{name}'{there}")
    if not state["complete"]:
        raise Failure(f"testbed '{name}' is incomplete; if no `testbed up` is running: testbed down{option(name)}")
    return state


def option(name):
    """Returns the option by which a command names the testbed."""
    return "" if name == "unet" else f" --name {name}"


def names():
    try:
        return sorted(entry.name for entry in os.scandir(base()) if entry.is_dir() and NAME.fullmatch(entry.name))
    except OSError:
        return []


def remove(state):
    if state.get("files"):
        shutil.rmtree(state["files"], ignore_errors=True)
    shutil.rmtree(directory(state["name"]), ignore_errors=True)
