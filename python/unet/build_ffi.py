# build_ffi.py - writes the C source of an extension module, `unet._unet` or `unet._splitc`; the build runs it.
#
#   build_ffi.py MODULE OUTPUT HEADER...
#
# The declarations are those of the C headers themselves, so there is no second list of functions that could be wrong.
import os
import re
import shlex
import subprocess
import sys

import cffi  # type: ignore[import]

# For each module: what its source includes, and what it declares besides the headers.
MODULES = {
    "_unet": ("""
#include <unet/unet.h>
#include <am/am.h>
#include <unet/rpc.h>
#include "guarded.h"
""", """
const char *unet_version(void);
extern "Python" {
  void unet_py_am_handler(unet_am_token *, void *);
  void unet_py_am_returned(unet_am_endpoint *, const unet_am_returned *, void *);
  void unet_py_rpc_procedure(unet_rpc_request *, void *);
  void unet_py_rpc_ended(unet_rpc_pending *, void *);
}
"""),
    "_splitc": ("""
#define SPLITC_PREFIXED_NAMES
#include <am/splitc/split_c.h>
""", """
extern "Python" int unet_py_splitc_program(int, char **);
"""),
}


def declarations(path: str) -> str:
    """The C declarations of a header, as cffi reads them."""
    with open(path, encoding="utf-8") as file:
        text = file.read().partition("// ---- old names")[0]  # a partition that finds nothing returns the whole text
    text = re.sub(r"^#(include|pragma).*", "", text, flags=re.MULTILINE)
    command = [*shlex.split(os.environ.get("CC", "cc")), "-E", "-P", "-DSPLITC_PREFIXED_NAMES", "-x", "c", "-"]
    text = subprocess.run(command, input=text, text=True, stdout=subprocess.PIPE, check=True).stdout
    return re.sub(r"^static (?:inline )?([^;{]*?) \{.*?^\}", r"\1;", text, flags=re.MULTILINE | re.DOTALL)  # bodies of guarded.h


def write(module: str, output: str, *headers: str) -> None:
    includes, others = MODULES[module]
    ffi = cffi.FFI()
    for header in headers:
        ffi.cdef(declarations(header))
    ffi.cdef(others)
    ffi.set_source("unet." + module, includes)
    ffi.emit_c_code(output)


if __name__ == "__main__":
    write(*sys.argv[1:])
