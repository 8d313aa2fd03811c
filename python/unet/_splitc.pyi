# _splitc.pyi - the extension module that build_ffi.py and the C compiler make.
from typing import Any

from ._unet import FFI

ffi: FFI
lib: Any
