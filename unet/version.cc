// version.cc - the version of the library, from meson.build.
#include "unet/version.h"

#include "unet/version_number.h"

extern "C" const char *unet_version(void) { return UNET_VERSION_NUMBER; }
