#!/usr/bin/env python3
# image.py - the OCI image: its digests, equal bytes when it is made again, and its programs in containers without an engine (contained.py)
# and, where podman is installed, by the lines of docs/CONTAINERS.md.
#
# Usage: image.py SOURCE UNETD UNETCTL UNETCAT
import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

from contained import NEEDS, PYTHON, SOCKET, contained
from daemon import NOBODY, WAIT, Failure, Unetd, directory, main, require, run, wait_until

SKIP = 77
SOURCE, UNETD, UNETCTL, UNETCAT = (os.path.abspath(path) for path in sys.argv[1:5])


def read(path):
    with open(path, "rb") as file:
        return file.read()


def image_of(packages):
    """Makes the image; its bytes."""
    path = packages + "/image.tar"
    done = subprocess.run([SOURCE + "/scripts/oci-image", packages, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    require(done.returncode == 0, f"no image: {done.stdout[-4000:]}")
    return read(path)


def plain_debian():
    """Whether this machine can make one: that needs the network, and what mmdebstrap itself needs."""
    return subprocess.run([SOURCE + "/scripts/new-debian", there + "/plain.tar", "--variant=essential"], check=False).returncode == 0


def files_of(image):
    with tarfile.open(fileobj=io.BytesIO(image)) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}


def parts_of(image):
    """The configuration and the layer. Each is found and verified by its digest, and there is nothing else."""
    files = files_of(image)
    require(json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}, "no OCI layout")

    def follow(descriptor):
        content = files.pop("blobs/" + descriptor["digest"].replace(":", "/"))
        require(hashlib.sha256(content).hexdigest() == descriptor["digest"].removeprefix("sha256:"), f"a wrong digest: {descriptor}")
        require(len(content) == descriptor["size"], f"a wrong size: {descriptor}")
        return content

    index = json.loads(files.pop("index.json"))
    manifest = json.loads(follow(index["manifests"][0]))
    config, (layer,) = json.loads(follow(manifest["config"])), map(follow, manifest["layers"])
    require(not files, f"parts that nothing names: {list(files)}")
    layer = gzip.decompress(layer)
    require(config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()], "a wrong digest of the layer")
    return config, layer


@contextlib.contextmanager
def run_directory(owner=0):
    with directory() as d:
        os.chmod(d, 0o755)
        os.chown(d, owner, owner)
        yield d


def ping_pong(path, listening, connecting, unetctl):
    """Each line comes back from a listener. It dies by SIGKILL, and leaves nothing."""
    environment = os.environ | {"UNET_NI": f"unix:{path}/unet.sock"}
    back, forth = os.pipe()
    listener = subprocess.Popen(listening, env=environment, stdin=back, stdout=forth)
    for end in (back, forth):
        os.close(end)
    caller = subprocess.Popen(connecting, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True)

    def report():
        status, out, err = run(*unetctl, "all", "--json", env=environment)
        require(status == 0, f"unetctl: {err}")
        return json.loads(out)

    try:
        for number in range(1000):
            caller.stdin.write(f"ping {number}\n")
            caller.stdin.flush()
            require(caller.stdout.readline() == f"ping {number}\n", f"ping {number} does not come back")
        local = [channel for channel in report()["channels"] if channel["path"] == "local"]
        require(local, "the two have no local channel")
        listener.kill()
        require(caller.wait(WAIT) != 0, "the other end does not learn of the death")
        wait_until(lambda: not any(report()[view] for view in ("endpoints", "channels", "names")) and
                   [client["program"] for client in report()["clients"]] == ["unetctl"], "a killed container leaves something")
        require(os.listdir(path) == ["unet.sock"], f"files are left: {os.listdir(path)}")
    finally:
        for process in (listener, caller):
            process.kill()
            process.communicate()


def test_digests_and_reproduction():
    require(files_of(image_of(PACKAGES)) == files_of(IMAGE), "a second image is another one")
    if shutil.which("skopeo"):
        status, out, err = run("skopeo", "inspect", f"oci-archive:{PACKAGES}/image.tar")
        require(status == 0 and json.loads(out)["Os"] == "linux", f"skopeo: {err}")
    else:
        print("      not tried: skopeo")


def test_application_of_the_image():
    with run_directory() as d, Unetd(UNETD, "--socket", d + "/unet.sock", "--group", "nogroup", "--policy", ROOT + "/policy.toml"):
        application = contained(ROOT, d + ":ro", *CONFIG["config"]["Env"], "/usr/bin/unetcat", "-l", "inbox")
        ping_pong(d, application, [UNETCAT, "inbox"], [UNETCTL])


def test_unetd_of_the_image():
    with run_directory(NOBODY) as d:
        command, = CONFIG["config"]["Cmd"]
        with Unetd(contained(ROOT, d, *CONFIG["config"]["Env"], "/usr/bin/" + command), "--socket", SOCKET, "--policy", "/policy.toml"):
            ping_pong(d, [UNETCAT, "-l", "inbox"], contained(ROOT, d + ":ro", "/usr/bin/unetcat", "inbox"),
                      contained(ROOT, d + ":ro", "/usr/bin/unetctl"))


def test_application_by_podman():
    """The lines of the document, but for the two directories. Images and containers of this machine stay as they are."""
    if not all(map(shutil.which, ("podman", "runc"))):
        print("      not tried: podman with runc: scripts/install-packages vm")
        return
    with open(SOURCE + "/docs/CONTAINERS.md", encoding="utf-8") as file:
        text = file.read().replace("\\\n", "")
    load, start = (next(line.split() for line in text.splitlines() if line.startswith(f"    podman {verb} ")) for verb in ("load", "run"))
    with run_directory() as d, tempfile.TemporaryDirectory(dir=there) as store:
        for name, content in {
                "storage.conf": f'[storage]\ndriver = "vfs"\nrunroot = "{store}/run"\ngraphroot = "{store}/graph"\n',
                "containers.conf": f'[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\ntmp_dir = "{store}/tmp"\n'
                                   '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'}.items():
            with open(f"{store}/{name}", "w", encoding="ascii") as file:
                file.write(content)
        os.environ |= {"CONTAINERS_STORAGE_CONF": store + "/storage.conf", "CONTAINERS_CONF": store + "/containers.conf"}
        with open(store + "/unet.tar", "wb") as file:
            file.write(IMAGE)
        status, out, err = run(*(word.replace("unet.tar", store + "/unet.tar") for word in load))
        require(status == 0, f"{' '.join(load)}: {out}{err}")
        with Unetd(UNETD, "--socket", d + "/unet.sock", "--group", "users", "--policy", ROOT + "/policy.toml"):
            ping_pong(d, [UNETCAT, "-l", "inbox"], [word.replace("/run/unet:/run", d + ":/run") for word in start], [UNETCTL])


if PYTHON is None or not all(map(shutil.which, ("mmdebstrap", "dh_clean", "dpkg-buildflags"))):
    print(f"{NEEDS}; mmdebstrap and debhelper")
    sys.exit(SKIP)
with tempfile.TemporaryDirectory(prefix="unet-image-", dir="/var/tmp") as there:
    os.chmod(there, 0o755)
    PACKAGES, ROOT = there + "/packages", there + "/root"
    subprocess.run([SOURCE + "/scripts/packages", PACKAGES], stdout=subprocess.DEVNULL, check=True)
    try:
        IMAGE = image_of(PACKAGES)
    except Failure as failure:
        print(failure, flush=True)
        sys.exit(1 if plain_debian() else SKIP)
    CONFIG, LAYER = parts_of(IMAGE)
    with tarfile.open(fileobj=io.BytesIO(LAYER)) as archive:
        archive.extractall(ROOT)
    os.chmod(ROOT, 0o755)
    os.makedirs(ROOT + "/run/unet")
    with open(ROOT + "/policy.toml", "w", encoding="ascii") as file:
        file.write("[[rule]]\nany = true\nnames = ['*']\n")
    RESULT = main(globals())
sys.exit(RESULT)
