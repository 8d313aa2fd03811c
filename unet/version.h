// version.h - the version of the library, for C and C++ programs.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the libunet that is loaded, as "MAJOR.MINOR.PATCH"; a static string. */
const char *unet_version(void);

#ifdef __cplusplus
}
#endif
