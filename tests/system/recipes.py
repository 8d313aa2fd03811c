#!/usr/bin/env python3
# recipes.py - the YAML of docs/CONTAINERS.md: it can be read, containers mount what is there, unetd takes its command line and policy, and
# has the capabilities of its service.
#
# Usage: recipes.py CONTAINERS.md UNIT UNETD
import re
import sys

from daemon import directory, main, require, run

DOCUMENT, UNIT, UNETD = sys.argv[1:4]
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
CONTAINERS = [container for pod in PODS for container in pod["spec"]["containers"]]


def test_mounts():
    require(len(PODS) == 3 and len(CONTAINERS) == 4, f"{len(PODS)} pods with {len(CONTAINERS)} containers")
    for pod in PODS:
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            mounts = container["volumeMounts"]
            require({mount["name"] for mount in mounts} <= volumes, f"{container['name']} mounts what is not there")
            require("/run/unet" in [mount["mountPath"] for mount in mounts], f"{container['name']} has no directory of the socket")
            require(container["command"][0] == "unetd" or container["env"] == [{"name": "UNET_NI", "value": "unix:/run/unet/unet.sock"}],
                    f"{container['name']} does not find the socket")


def test_unetd_takes_its_command_line():
    policy, = (each["data"]["policy.toml"] for each in OBJECTS if each["kind"] == "ConfigMap")
    with directory() as d:
        with open(d + "/policy.toml", "w", encoding="ascii") as file:
            file.write(policy)
        here = {"/etc/unet/policy.toml": d + "/policy.toml", "unet": "nobody"}  # the image has the user unet
        for command in (container["command"][1:] for container in CONTAINERS if container["command"][0] == "unetd"):
            status, out, err = run(UNETD, "--check", *(here.get(word, word) for word in command))
            require(status == 0, f"{command}: {out}{err}")


def test_capabilities():
    unit = re.search(r"^CapabilityBoundingSet=(.*)$", read(UNIT), re.M)[1].replace("CAP_", "").split()
    given = [container["securityContext"]["capabilities"] for container in CONTAINERS]
    require(all(each["drop"] == ["ALL"] for each in given), "a container keeps capabilities")
    require([sorted(each["add"]) for each in given if "add" in each] == [sorted(unit)], f"the service has {unit}")


sys.exit(main(globals()))
