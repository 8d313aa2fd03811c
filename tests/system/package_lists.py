#!/usr/bin/env python3
# package_lists.py - the lists of debian/: each installed file belongs to one package, and versions and needed packages are those of the tree.
#
# Usage: package_lists.py MESON SOURCE BUILD
import collections
import json
import os
import re
import subprocess
import sys

MESON, SOURCE, BUILD = sys.argv[1:4]


def introspect(what):
    return json.loads(subprocess.run([MESON, "introspect", what, BUILD], stdout=subprocess.PIPE, check=True).stdout)


def text_of(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def installed():
    """The installed files, as a build of the packages places them."""
    options = {each["name"]: each["value"] for each in introspect("--buildoptions")}
    places = {os.path.relpath(path, options["prefix"]) for path in introspect("--installed").values()}
    return {re.sub(rf"^usr/{re.escape(options['libdir'])}/", "usr/lib/x86_64-linux-gnu/", "usr/" + place) for place in places}


def patterns():
    """(package, pattern) for each line of the *.install files; a directory stands for all below it."""
    for name in sorted(os.listdir(os.path.join(SOURCE, "debian"))):
        if name.endswith(".install"):
            for line in text_of("debian/" + name).splitlines():
                yield name[:-len(".install")], line.split()[0]


def main():
    files, lists = installed(), list(patterns())
    wrong, owners = [], collections.defaultdict(list)
    for package, pattern in lists:
        matches = re.compile(re.escape(pattern).replace(r"\*", "[^/]*") + "(/.*)?").fullmatch
        found = [file for file in files if matches(file)]
        wrong += [] if found else [f"{package}: nothing is installed as {pattern}"]
        for file in found:
            owners[file].append(package)
    wrong += [f"{file} is in {' and '.join(owners[file]) or 'no package'}" for file in sorted(files) if len(owners[file]) != 1]
    version, = (each["version"] for each in [introspect("--projectinfo")])
    if not text_of("debian/changelog").startswith(f"unet ({version}) "):
        wrong.append(f"debian/changelog does not begin with version {version}")
    known = set(re.findall(r"^([a-z0-9][a-z0-9.+-]*)", text_of("scripts/packages.txt").split("[bench]")[0], re.M))
    control = text_of("debian/control")
    needed = re.findall(r"^ ([a-z0-9.+-]+)", control.split("Build-Depends:\n")[1].split("\n\n")[0], re.M)
    wrong += [f"Build-Depends has {each}, which group run of scripts/packages.txt has not" for each in needed
              if each not in known | {"debhelper-compat", "dh-sequence-python3"}]
    wrong += [f"debian/control has no package {each}" for each in {package for package, _ in lists}
              if f"\nPackage: {each}\n" not in control]
    print(*wrong, f"{len(files)} files in {len({package for package, _ in lists})} packages", sep="\n")
    return 1 if wrong else 0


sys.exit(main())
