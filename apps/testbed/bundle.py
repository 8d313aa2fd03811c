# bundle.py - puts the modules of testbed into one program that can be installed and copied; meson.build runs it.
#
# Usage: bundle.py OUTPUT VERSION MODULE...
import os
import sys
import zipfile

output, version, modules = sys.argv[1], sys.argv[2], sys.argv[3:]
with open(output, "wb") as program:
    program.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(program, "w", zipfile.ZIP_DEFLATED) as bundle:
        for module in sorted(modules):
            # Without timestamps: the same modules make the same program.
            with open(module, "rb") as source:
                bundle.writestr(zipfile.ZipInfo(os.path.basename(module)), source.read(), zipfile.ZIP_DEFLATED)
        bundle.writestr(zipfile.ZipInfo("version.py"), f'VERSION = "{version}"\n', zipfile.ZIP_DEFLATED)
os.chmod(output, 0o755)
