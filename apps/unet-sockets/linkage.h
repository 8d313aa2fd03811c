// linkage.h - whether a program can have sockets of ours at all, before it is started; used by main.cc.
#pragma once

#include <optional>
#include <string>

namespace unet::wrapper {

// Why the library would not be in front of that program's calls; nothing: it would. `name` is as execvp() takes it. A script stands for its
// interpreter. What cannot be found or read is for exec() to say.
std::optional<std::string> kernel_alone(const std::string& name);

}  // namespace unet::wrapper
