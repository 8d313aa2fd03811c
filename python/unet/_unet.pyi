# _unet.pyi - the extension module that build_ffi.py and the C compiler make.
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., object])

class FFI:
    def def_extern(self) -> Callable[[F], F]: ...
    def __getattr__(self, name: str) -> Any: ...

ffi: FFI
lib: Any
