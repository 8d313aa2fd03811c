// host_name.h - the name by which other hosts know the network interface of a context; used by the interfaces in compat/.
#pragma once

#include <string>
#include <string_view>

#include "unet/unet.h"

namespace unet::am {

// Returns the member `host` of a JSON report; empty if there is none. Ignores nested members.
inline std::string host_in(std::string_view report) {
  int depth = 0;
  bool value = false;  // the string is a value, not a member's name
  std::string_view name;
  for (size_t at = 0; at < report.size(); ++at) {
    switch (report[at]) {
      case '{': case '[': ++depth; value = false; break;
      case '}': case ']': --depth; break;
      case ':': value = true; break;
      case ',': value = false; break;
      case '"': {
        const size_t begin = ++at;
        while (at < report.size() && report[at] != '"') at += report[at] == '\\' ? 2 : 1;
        const std::string_view text = report.substr(begin, at - begin);
        if (depth == 1 && value && name == "host") return std::string(text);
        if (depth == 1 && !value) name = text;
        break;
      }
      default: break;
    }
  }
  return {};
}

inline std::string host_name(unet_context* context) {
  char* report = nullptr;
  if (unet_report(context, &report) < 0) return {};
  std::string host = host_in(report);
  unet_free(report);
  return host;
}

}  // namespace unet::am
