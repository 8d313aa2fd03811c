// trust.h - the checks of what another party wrote, by one name, so that what they cost can be measured; used wherever memory
// is read that somebody else can write.
//
// `meson setup -Dtrust=unchecked` makes every checked() true without looking. Such a build protects nobody from anybody: it is
// there for scripts/cost-of-trust, which measures it beside the ordinary one.
#pragma once

namespace unet {

#if defined(UNET_TRUST_UNCHECKED)
constexpr bool kChecked = false;
#else
constexpr bool kChecked = true;
#endif

// `holds` is what every honest party's writing fulfils; whoever calls acts on its answer, and on nothing else.
constexpr bool checked(bool holds) noexcept { return !kChecked || holds; }

}  // namespace unet
