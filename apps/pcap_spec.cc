// pcap_spec.cc - makes a pcap wire, on an interface or two files, from options.
#include "apps/pcap_spec.h"

#include <optional>
#include <string>

#include "apps/spec_values.h"
#include "drivers/pcap/pcap_files.h"
#include "drivers/pcap/pcap_live.h"
#include "unet/wire/ethernet.h"

namespace unet::apps {

namespace {

tl::unexpected<Error> refuse(const std::string& what) { return fail(Errc::invalid_argument, "pcap: " + what); }

// "02:00:00:00:00:01": a station's address, neither zero nor a group's.
Result<MacAddress> parse_station(const std::string& text) {
  const std::optional<MacAddress> address = parse_mac(text);
  if (!address || !is_station(*address)) return refuse("address: '" + text + "' is not a station's address, such as 02:00:00:00:00:01");
  return *address;
}

}  // namespace

Result<std::unique_ptr<Driver>> make_pcap(std::string_view text, bool all_types) {
  const auto as_driver = [](auto port) { return std::unique_ptr<Driver>(std::move(port)); };
  drivers::PcapOptions live;
  live.all_types = all_types;
  drivers::PcapFilesOptions files;
  bool for_files = false;  // an option for files only was given
  for (const auto& [name, value] : split_options(text)) {
    if (name == "iface") live.interface = value;
    else if (name == "read") files.read = value;
    else if (name == "write") files.write = value;
    else if (name == "mtu") {
      const auto mtu = parse_count(value, 256, 9600);
      if (!mtu) return refuse("mtu: " + mtu.error().text);
      live.mtu = files.mtu = static_cast<uint32_t>(*mtu);
    } else if (name == "timed") {
      if (value != "yes" && value != "no") return refuse("timed: '" + value + "' is not yes or no");
      files.timed = value == "yes";
      for_files = true;
    } else if (name == "address") {
      const auto address = parse_station(value);
      if (!address) return tl::unexpected(address.error());
      files.address = *address;
      for_files = true;
    } else {
      return refuse("'" + name + "' is not an option; allowed: iface mtu, or read write timed address mtu");
    }
  }
  const bool has_files = !files.read.empty() || !files.write.empty();
  if (live.interface.empty() && !has_files) {
    return refuse("needs iface=INTERFACE, or read=FILE and write=FILE: pcap:iface=eth1, pcap:read=in.pcap,write=out.pcap");
  }
  if (live.interface.empty()) return drivers::PcapFiles::open(files).map(as_driver);
  if (has_files || for_files) return refuse("iface= goes with mtu= alone: a wire is an interface or files");
  return drivers::PcapLive::open(live).map(as_driver);
}

}  // namespace unet::apps
