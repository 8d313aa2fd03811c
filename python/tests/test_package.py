#!/usr/bin/env python3
# test_package.py - the package as users install it: by `meson install`, and by pip over installed libraries, from an sdist, as a wheel.
#
# test_package.py MESON BUILD_DIR SOURCE_DIR. The tests of the channels then run with the installed package.
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

BUILD_SDIST = "import mesonpy; mesonpy.build_sdist('.')"


def run(*command, directory=None, **variables):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=directory, check=False,
                          env={**os.environ, **variables})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def only(pattern):
    found = glob.glob(pattern, recursive=True)
    assert len(found) == 1, (pattern, found)
    return found[0]


def main(meson, build, source):
    missing = [name for name in ("mesonpy", "pip", "venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        print("not tried: there is no", ", ".join(missing))
        return 77
    with tempfile.TemporaryDirectory() as there:
        run(meson, "install", "-C", build, "--no-rebuild", "--destdir", there)
        pkgconfig = os.path.dirname(only(there + "/**/unet.pc"))
        for pc in glob.glob(pkgconfig + "/*.pc"):  # a sysroot would hide Python's own headers
            with open(pc, encoding="utf-8") as file:
                text = file.read()
            with open(pc, "w", encoding="utf-8") as file:
                file.write(text.replace("prefix=", "prefix=" + there, 1))
        libraries = os.path.dirname(only(there + "/**/libunet.so.0"))
        tests = [os.path.join(source, "python", "tests", "test_channels.py")]
        paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": os.path.join(source, "tests", "system")}

        installed = os.path.dirname(os.path.dirname(only(there + "/**/unet/py.typed")))
        run(sys.executable, *tests, **{**paths, "PYTHONPATH": paths["PYTHONPATH"] + ":" + installed})

        package = os.path.join(there, "package")  # in a repository of its own: an sdist has what is committed
        shutil.copytree(os.path.join(source, "python"), package, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
        run("git", "init", "-q", directory=package)
        run("git", "add", ".", directory=package)
        run("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "package", directory=package)
        found = {"PKG_CONFIG_PATH": pkgconfig, **paths}
        run(sys.executable, "-c", BUILD_SDIST, directory=package, **found)
        offline = ("--no-index", "--no-build-isolation", "--no-cache-dir")
        run(sys.executable, "-m", "pip", "wheel", *offline, "--no-deps", "-w", there, only(package + "/*.tar.gz"), **found)
        environment = os.path.join(there, "environment")
        run(sys.executable, "-m", "venv", "--system-site-packages", environment)
        python = os.path.join(environment, "bin", "python3")
        run(python, "-m", "pip", "install", "--no-index", "--no-cache-dir", only(there + "/*.whl"))
        run(python, *tests, **paths)
        version = run(python, "-c", "import importlib.metadata, unet; print(importlib.metadata.version('unet'), unet.__version__)", **paths)
        assert len(set(version.split())) == 1, version
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
