#!/usr/bin/env python3
# recipes.py - the YAML of docs/CONTAINERS.md: it can be read, and containers mount what is there. They run programs of the image.
# unetd takes its command line and policy, and has the capabilities of its service. It serves the commands of probes and hooks.
#
# Usage: recipes.py CONTAINERS.md UNIT UNETD
import os
import re
import sys

from daemon import Unetd, directory, main, require, run

DOCUMENT, UNIT, UNETD = sys.argv[1:4]
DEBIAN = os.path.join(os.path.dirname(DOCUMENT), "..", "debian")
UNETCTL = os.path.join(os.path.dirname(UNETD), "..", "unetctl", "unetctl")
SKIP = 77
try:
    import yaml
except ImportError:
    print("skipped: there is no python3-yaml")
    sys.exit(SKIP)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


OBJECTS = [each for block in re.findall(r"^```yaml\n(.*?)^```$", read(DOCUMENT), re.M | re.S) for each in yaml.safe_load_all(block)]
PODS = [each if each["kind"] == "Pod" else each["spec"]["template"] for each in OBJECTS if each["kind"] in ("Pod", "DaemonSet")]


def containers_of(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


CONTAINERS = [container for pod in PODS for container in containers_of(pod)]


def test_mounts():
    require(len(PODS) == 3 and len(CONTAINERS) == 4, f"{len(PODS)} pods with {len(CONTAINERS)} containers")
    for pod in PODS:
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in containers_of(pod):
            mounts = container["volumeMounts"]
            require({mount["name"] for mount in mounts} <= volumes, f"{container['name']} mounts what is not there")
            require("/run/unet" in [mount["mountPath"] for mount in mounts], f"{container['name']} has no directory of the socket")
            require(container["command"][0] == "unetd" or container["env"] == [{"name": "UNET_NI", "value": "unix:/run/unet/unet.sock"}],
                    f"{container['name']} does not find the socket")


def test_image():
    """It has the packages unetd and unet-tools. Their version is its tag (scripts/oci-image)."""
    version = re.match(r"unet \((\S+)\)", read(DEBIAN + "/changelog"))[1]
    tags = set(re.findall(r"\bunet:(\d\S*)", read(DOCUMENT)))
    require(tags == {version.translate(str.maketrans("~+:", "---"))}, f"the document names {tags}, and the image is of {version}")
    installed = "".join(read(f"{DEBIAN}/{package}.install") for package in ("unetd", "unet-tools")).split()
    for container in CONTAINERS:
        require(container["image"].startswith("unet:"), f"{container['name']} runs {container['image']}")
        require("usr/bin/" + container["command"][0] in installed, f"{container['name']}: the image has no {container['command'][0]}")


def test_unetd_takes_its_command_line():
    policy, = (each["data"]["policy.toml"] for each in OBJECTS if each["kind"] == "ConfigMap")
    with directory() as d:
        with open(d + "/policy.toml", "w", encoding="ascii") as file:
            file.write(policy)
        here = {"/etc/unet/policy.toml": d + "/policy.toml", "unet": "nobody"}  # the image has the user unet
        for command in (container["command"][1:] for container in CONTAINERS if container["command"][0] == "unetd"):
            status, out, err = run(UNETD, "--check", *(here.get(word, word) for word in command))
            require(status == 0, f"{command}: {out}{err}")


def test_sidecar_is_there_before_the_application():
    sidecars = [container for pod in PODS for container in pod["spec"].get("initContainers", [])]
    require([container["command"][0] for container in sidecars] == ["unetd"], f"{len(sidecars)} init containers")
    require(sidecars[0]["restartPolicy"] == "Always" and "exec" in sidecars[0]["startupProbe"], "the application does not wait for unetd")


def test_probes_and_hooks():
    handlers = [handler for each in CONTAINERS for handler in (each.get("startupProbe"), each.get("lifecycle", {}).get("preStop")) if handler]
    require(len(handlers) == 2, f"{len(handlers)} probes and hooks")
    with directory() as d, Unetd(UNETD, "--socket", d + "/unet.sock"):
        for program, *words in (handler["exec"]["command"] for handler in handlers):
            require(program == "unetctl", f"not tried: {program}")
            status, out, err = run(UNETCTL, *words, env=os.environ | {"UNET_NI": f"unix:{d}/unet.sock"})
            require(status == 0, f"unetctl {words}: {out}{err}")


def test_capabilities():
    unit = re.search(r"^CapabilityBoundingSet=(.*)$", read(UNIT), re.M)[1].replace("CAP_", "").split()
    given = [container["securityContext"]["capabilities"] for container in CONTAINERS]
    require(all(each["drop"] == ["ALL"] for each in given), "a container keeps capabilities")
    require([sorted(each["add"]) for each in given if "add" in each] == [sorted(unit)], f"the service has {unit}")


sys.exit(main(globals()))
