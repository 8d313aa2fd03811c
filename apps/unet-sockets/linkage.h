// linkage.h - tells before a program starts whether the library can be preloaded into it; used by main.cc.
#pragma once

#include <optional>
#include <string>

namespace unet::wrapper {

// Why the library could not intercept that program's calls; nothing: it could. `name` is as execvp() takes it. A script stands for its
// interpreter. A missing or unreadable file is left to exec().
std::optional<std::string> kernel_alone(const std::string& name);

}  // namespace unet::wrapper
