// two_hosts.h - two unetds with two memifs between them; for system tests of the C++ API across wires.
#pragma once

#include <string>
#include <vector>

#include "tests/system/ni_process.h"

namespace unet {

// Each knows the other's port p as host "leftp" or "rightp", so that a name chooses the wire.
struct TwoHosts {
  explicit TwoHosts(uint32_t engines = 2, const std::string& quotas = {}) : left({}, quotas), right({}, quotas) {
    const auto options = [&](bool is_left) {
      std::vector<std::string> list{"--engines", std::to_string(engines), "--host", is_left ? "left" : "right"};
      for (int port = 0; port < 2; ++port) {
        const std::string number = std::to_string(port), own = is_left ? "1" : "2", other = is_left ? "2" : "1";
        const std::string socket = ",socket=" + left.directory() + "/memif" + number;
        list.insert(list.end(), {"--port", "dpdk:net_memif" + number + socket + ",mac=02:00:00:00:0" + own + ":0" + number +
                                               (is_left ? ",role=server" : ",role=client,wait_link=30s"),
                                 "--peer",
                                 (is_left ? "right" : "left") + number + "=02:00:00:00:0" + other + ":0" + number + "@" + number});
      }
      return list;
    };
    left.restart(options(true));
    right.restart(options(false));
  }
  NiProcess left, right;
};

}  // namespace unet
