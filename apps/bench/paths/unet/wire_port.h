// wire_port.h - one port per side, used in turn by U-Net's embedded NI and by the bare baseline: the same device, pool and
// settings, so that their ratio says what U-Net costs. Without DPDK (pcap, xdp) there is no bare port.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/frame/path.h"
#include "apps/bench/frame/shared_memory.h"
#include "drivers/dpdk/raw_bench.h"
#include "unet/context.h"
#include "unet/wire/frame.h"

namespace unet::bench {

enum class WireKind : uint8_t { memif, memif_zero_copy, af_xdp, af_packet, pcap, xdp, impaired };  // impaired: net_af_packet

// A network interface in this process, and a client of it. `ip`: what its port has of IP, as unetd takes it after PORT=; or nothing.
Result<std::unique_ptr<Context>> open_embedded(const std::string& host, std::unique_ptr<Driver> driver, const std::string& ip);

// Shared by the paths of one kind of wire. prepare() and set_up() do their work at the first call.
class WirePort {
 public:
  // `ip`: the network interfaces on it have IP, at ip_address().
  explicit WirePort(WireKind kind, bool ip = false) : kind_(kind), ip_(ip) {}
  ~WirePort();

  Status prepare(Environment& environment);
  Status set_up(const RunContext& context, Environment& environment);
  void tear_down();

  // For the bare baseline, while the NI rests: the NI's port.
  drivers::RawLink raw_link() { return {*port_, peer_}; }
  Context& context() { return *context_; }
  static std::string ip_address(Side side) { return side == Side::a ? "10.98.0.1" : "10.98.0.2"; }
  static constexpr const char* kTarget = "bench@side-b";
  static constexpr const char* kHostB = "@side-b";
  static constexpr const char* kHosts[] = {"side-a", "side-b"};

 private:
  struct Addresses;
  bool between_namespaces() const { return kind_ != WireKind::memif && kind_ != WireKind::memif_zero_copy; }
  Status make_namespaces(Environment& environment);
  Result<std::string> device(Side side) const;
  Status open_port(Side side, Environment& environment, std::unique_ptr<Driver>& driver);
  Status exchange_addresses(const RunContext& context);
  Status open_ni(Side side, std::unique_ptr<Driver> driver);

  // The number of a device among those of its kind in this process.
  std::string number() const {
    const bool second = kind_ == WireKind::memif_zero_copy || kind_ == WireKind::impaired;
    return std::to_string((second ? 1 : 0) + (ip_ ? 2 : 0));
  }

  const WireKind kind_;
  const bool ip_;
  bool prepared_ = false, opened_ = false;
  Status prepared_status_, opened_status_;
  std::string directory_;               // memif: where its socket is
  int owner_ = 0;
  std::string interface_a_, interface_b_;
  SharedMemory memory_;                 // Addresses
  drivers::DpdkPort* port_ = nullptr;   // owned by the NI
  MacAddress address_{};
  MacAddress peer_{};
  std::unique_ptr<Context> context_;
};

}  // namespace unet::bench
