# bundle.py - puts modules of Python, and files that they read, into one program that can be installed and copied; meson.build runs it.
#
# Usage: bundle.py OUTPUT VERSION INTERPRETER FILE...
import os
import sys
import zipfile

output, version, interpreter, modules = *sys.argv[1:4], sys.argv[4:]
with open(output, "wb") as program:
    program.write(f"#!{interpreter}\n".encode())
    with zipfile.ZipFile(program, "w", zipfile.ZIP_DEFLATED) as bundle:
        for module in sorted(modules):
            # Without timestamps: the same modules make the same program.
            with open(module, "rb") as source:
                bundle.writestr(zipfile.ZipInfo(os.path.basename(module)), source.read(), zipfile.ZIP_DEFLATED)
        bundle.writestr(zipfile.ZipInfo("version.py"), f'VERSION = "{version}"\n', zipfile.ZIP_DEFLATED)
os.chmod(output, 0o755)
