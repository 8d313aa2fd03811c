// embedded_spec.cc - parses `DRIVER;key=value;...`.
#include "apps/embedded/embedded_spec.h"

#include <charconv>
#include <vector>

#include "ni/service/ip_config.h"
#include "ni/service/names.h"
#include "ni/service/signalling_times.h"

namespace unet::embedded {
namespace {

// An application may compute for long between two polls; its peers must not take it for dead.
constexpr Nanoseconds kLostAfter = 30 * kSecond;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(';');
    parts.push_back(trimmed(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Status set_lost_after(std::string_view value, service::Config& config) {
  uint64_t ms = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ms);
  constexpr uint64_t least = service::kLostAfterMin / kMillisecond, most = service::kLostAfterMax / kMillisecond;
  if (error != std::errc() || end != value.data() + value.size() || ms < least || ms > most) {
    return fail(Errc::invalid_argument, "lost_after=" + std::string(value) + ": a number of milliseconds from " +
                                            std::to_string(least) + " to " + std::to_string(most) + " is allowed");
  }
  config.ni.service.lost_after = ms * kMillisecond;
  return {};
}

Status apply(std::string_view key, std::string_view value, service::Config& config) {
  if (key == "host") {
    config.ni.service.host = std::string(value);
  } else if (key == "port") {
    config.ports.emplace_back(value);
  } else if (key == "ip") {
    Result<engine::IpInterfaceOptions> options = service::parse_ip_port(value);
    if (!options) return tl::unexpected(options.error());
    config.ni.engine.ip.ports.push_back(std::move(*options));
  } else if (key == "lost_after") {
    return set_lost_after(value, config);
  } else if (key == "peer") {
    Result<service::StaticPeer> peer = service::parse_peer(value);
    if (!peer) return tl::unexpected(peer.error());
    config.ni.service.peers.push_back(std::move(*peer));
  } else if (key != "config") {
    return fail(Errc::invalid_argument, "unknown option " + service::in_quotes(key) +
                                            " of an embedded network interface; allowed: host, port, ip, peer, lost_after, config");
  }
  return {};
}

}  // namespace

Result<service::Config> parse_embedded(std::string_view text) {
  service::Config config = service::default_config();
  config.ni.service.lost_after = kLostAfter;
  const std::vector<std::string_view> parts = split(text);
  // Reads the file first, wherever it stands: options override it.
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].substr(0, 7) != "config=") continue;
    if (Status status = service::load_config(std::string(parts[i].substr(7)), config); !status) return tl::unexpected(status.error());
  }
  if (!parts[0].empty()) config.ports.insert(config.ports.begin(), std::string(parts[0]));
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    const size_t equals = parts[i].find('=');
    if (equals == std::string_view::npos || equals + 1 == parts[i].size()) {
      return fail(Errc::invalid_argument, "option " + service::in_quotes(parts[i]) + " of an embedded network interface: write KEY=VALUE");
    }
    if (Status status = apply(trimmed(parts[i].substr(0, equals)), trimmed(parts[i].substr(equals + 1)), config); !status) {
      return tl::unexpected(status.error());
    }
  }
  config.ni.socket.clear();
  if (Status status = service::finish_config(config); !status) return tl::unexpected(status.error());
  return config;
}

}  // namespace unet::embedded
