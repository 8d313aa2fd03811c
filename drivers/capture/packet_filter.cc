// packet_filter.cc - libpcap's compiler and interpreter.
#include "drivers/capture/packet_filter.h"

#include <pcap/pcap.h>

namespace unet::drivers {
namespace {

void free_program(bpf_program* program) noexcept {
  pcap_freecode(program);
  delete program;
}

}  // namespace

Result<PacketFilter> PacketFilter::compile(const std::string& expression, uint32_t snap_length) {
  PacketFilter filter;
  if (expression.empty()) return filter;
  pcap_t* const dead = pcap_open_dead(DLT_EN10MB, static_cast<int>(snap_length));
  if (dead == nullptr) return fail(Errc::out_of_memory, "capture: no memory for the filter");
  auto program = std::make_unique<bpf_program>();
  const bool good = pcap_compile(dead, program.get(), expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) == 0;
  const std::string error = pcap_geterr(dead);
  pcap_close(dead);
  if (!good) {
    return fail(Errc::invalid_argument, "capture: filter '" + expression + "': " + error + " (`man pcap-filter` has the language)");
  }
  filter.program_ = {program.release(), free_program};
  return filter;
}

bool PacketFilter::wants(std::span<const std::byte> bytes, uint32_t length) const noexcept {
  return program_ == nullptr ||
         bpf_filter(program_->bf_insns, reinterpret_cast<const u_char*>(bytes.data()), length, static_cast<u_int>(bytes.size())) != 0;
}

}  // namespace unet::drivers
