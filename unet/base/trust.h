// trust.h - one name for all checks of another party's data, so that their cost can be measured; used wherever code reads memory that
// another party can write.
//
// `meson setup -Dtrust=unchecked` makes every checked() true without looking. Such a build protects nothing: scripts/cost-of-trust uses it
// to measure the checks against the ordinary build.
#pragma once

namespace unet {

#if defined(UNET_TRUST_UNCHECKED)
constexpr bool kChecked = false;
#else
constexpr bool kChecked = true;
#endif

// `holds` is a condition that every honest party fulfils. The caller must act on the returned value only.
constexpr bool checked(bool holds) noexcept { return !kChecked || holds; }

}  // namespace unet
