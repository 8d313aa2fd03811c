// wrapper_spec.cc - parses the options of each wrapper.
#include "apps/wrapper_spec.h"

#include <bit>
#include <string>

#include "apps/spec_values.h"
#include "apps/udp_spec.h"
#include "drivers/capture/capture.h"
#include "drivers/faulty/faulty.h"
#include "drivers/trace/trace.h"
#include "drivers/vlan/vlan.h"

namespace unet::apps {

namespace {

using Made = Result<std::unique_ptr<Driver>>;

// "10us" or "10us-50us"
Status assign_delay(const std::string& text, drivers::FaultyOptions& options) {
  const size_t dash = text.find('-');
  if (Status status = assign("delay", parse_duration(text.substr(0, dash)), options.delay_min); !status) return status;
  options.delay_max = options.delay_min;
  if (dash == std::string::npos) return {};
  if (Status status = assign("delay", parse_duration(text.substr(dash + 1)), options.delay_max); !status) return status;
  if (options.delay_min > options.delay_max)
    return fail(Errc::invalid_argument, "delay: '" + text + "': the first time must be the smaller one");
  return {};
}

Status set_faulty(const std::string& name, const std::string& value, drivers::FaultyOptions& o) {
  if (name == "loss") return assign(name, parse_probability(value), o.loss);
  if (name == "duplicate") return assign(name, parse_probability(value), o.duplicate);
  if (name == "reorder") return assign(name, parse_probability(value), o.reorder);
  if (name == "corrupt") return assign(name, parse_probability(value), o.corrupt);
  if (name == "bits") return assign(name, parse_count(value, 1, 64), o.corrupt_bits);
  if (name == "delay") return assign_delay(value, o);
  if (name == "hold") return assign(name, parse_duration(value), o.reorder_hold);
  if (name == "rate") return assign(name, parse_rate(value), o.bits_per_second);
  if (name == "seed") return assign(name, parse_count(value, 0, ~uint64_t{0}), o.seed);
  if (name == "frames") return assign(name, parse_count(value, 1, 65536), o.frames);
  if (name == "direction") {
    if (value == "rx") o.direction = drivers::FaultyDirection::receive;
    else if (value == "tx") o.direction = drivers::FaultyDirection::transmit;
    else if (value == "both") o.direction = drivers::FaultyDirection::both;
    else return fail(Errc::invalid_argument, "direction: '" + value + "' is not rx, tx or both");
    return {};
  }
  return fail(
      Errc::invalid_argument,
      "'" + name + "' is not an option; allowed: loss duplicate reorder corrupt bits delay hold rate seed frames direction");
}

Result<Wrapper> parse_faulty(std::string_view text) {
  drivers::FaultyOptions options;
  for (const auto& [name, value] : split_options(text)) {
    if (Status status = set_faulty(name, value, options); !status) return fail(Errc::invalid_argument, "faulty: " + status.error().text);
  }
  return [options](std::unique_ptr<Driver> wire) -> Made { return std::make_unique<drivers::Faulty>(std::move(wire), options); };
}

Status set_capture(const std::string& name, const std::string& value, drivers::CaptureOptions& o) {
  if (name == "filter") o.filter = value;
  else if (name == "file") o.file = value;
  else if (name == "snap") return assign(name, parse_count(value, 14, 65535), o.snap_length);
  else if (name == "limit") return assign(name, parse_bytes(value), o.limit);
  else if (name == "buffer") {
    uint64_t bytes = 0;
    if (Status status = assign(name, parse_bytes(value), bytes); !status) return status;
    if (!std::has_single_bit(bytes) || bytes < 256 << 10 || bytes > 1 << 30)
      return fail(Errc::invalid_argument, "buffer: '" + value + "' is not 256k, 512k, 1M, 2M, ... or 1G");
    o.ring_bytes = static_cast<uint32_t>(bytes);
  } else {
    return fail(Errc::invalid_argument, "'" + name + "' is not an option; allowed: file filter snap limit buffer");
  }
  return {};
}

Result<Wrapper> parse_capture(std::string_view text) {
  drivers::CaptureOptions options;
  for (const auto& [name, value] : split_options(text)) {
    if (Status status = set_capture(name, value, options); !status) return fail(Errc::invalid_argument, "capture: " + status.error().text);
  }
  if (options.file.empty()) return fail(Errc::invalid_argument, "capture: needs a file: capture:file=out.pcapng / dpdk:...");
  return [options](std::unique_ptr<Driver> wire) { return drivers::Capture::wrap(std::move(wire), options); };
}

Result<Wrapper> parse_trace(std::string_view text) {
  std::string file;
  for (const auto& [name, value] : split_options(text)) {
    if (name != "file") return fail(Errc::invalid_argument, "trace: '" + name + "' is not an option; allowed: file");
    if (value.empty()) return fail(Errc::invalid_argument, "trace: file: needs a name; for lines on stderr leave it out");
    file = value;
  }
  return [file](std::unique_ptr<Driver> wire) { return drivers::Trace::wrap(std::move(wire), file); };
}

Result<Wrapper> parse_vlan(std::string_view text) {
  drivers::VlanOptions options;
  for (const auto& [name, value] : split_options(text)) {
    Status status;
    if (name == "id") status = assign(name, parse_count(value, 1, drivers::kVlanMax), options.id);
    else if (name == "priority") status = assign(name, parse_count(value, 0, 7), options.priority);
    else status = fail(Errc::invalid_argument, "'" + name + "' is not an option; allowed: id priority");
    if (!status) return fail(Errc::invalid_argument, "vlan: " + status.error().text);
  }
  if (options.id == 0) return fail(Errc::invalid_argument, "vlan: needs a number: vlan:id=7 / dpdk:...");
  return [options](std::unique_ptr<Driver> wire) -> Made { return std::make_unique<drivers::Vlan>(std::move(wire), options); };
}

constexpr WrapperKind kWrappers[] = {{.form = "udp:OPTIONS", .parse = parse_udp, .takes_queues = true, .needs_all_types = true},
                                     {.form = "vlan:OPTIONS", .parse = parse_vlan, .takes_queues = true, .needs_all_types = true},
                                     {.form = "faulty:OPTIONS", .parse = parse_faulty},
                                     {.form = "capture:OPTIONS", .parse = parse_capture, .takes_segments = true},
                                     {.form = "trace", .parse = parse_trace, .takes_segments = true}};

// For a wrapper with state of its own, which several threads would share on a wire with several queues.
Wrapper of_one_queue(std::string name, Wrapper wrapper) {
  return [name = std::move(name), wrapper = std::move(wrapper)](std::unique_ptr<Driver> wire) -> Made {
    if (wire->queues() == 1) return wrapper(std::move(wire));
    return fail(Errc::invalid_argument, name + ": needs a wire with one queue, and this one has " + std::to_string(wire->queues()) +
                                            " (queues=)");
  };
}

}  // namespace

const WrapperKind* wrapper_kind(std::string_view text) {
  for (const WrapperKind& kind : kWrappers) {
    if (name_in(kind.form) == name_in(text)) return &kind;
  }
  return nullptr;
}

Result<Wrapper> parse_wrapper(std::string_view text) {
  const WrapperKind* const kind = wrapper_kind(text);
  if (kind == nullptr)
    return fail(Errc::invalid_argument, "'" + std::string(text) + "' stands before ' / ', where only wrappers may: " + wrapper_forms());
  Result<Wrapper> wrapper = kind->parse(options_in(text));
  if (!wrapper || kind->takes_queues) return wrapper;
  return of_one_queue(std::string(name_in(text)), std::move(*wrapper));
}

std::string wrapper_forms() {
  std::string forms;
  for (const WrapperKind& kind : kWrappers) forms += (forms.empty() ? "" : ", ") + std::string(kind.form);
  return forms;
}

}  // namespace unet::apps
