// port.cc - bursts of frames to the driver.
#include "unet/engine/port.h"

#include <algorithm>

#include "unet/base/check.h"
#include "unet/engine/tag_table.h"

namespace unet::engine {

Port::Port(std::unique_ptr<Driver> driver, NiCounters& counters) : driver_(std::move(driver)), counters_(counters) {
  const DriverCapabilities& capabilities = driver_->capabilities();
  address_ = capabilities.address;
  address_key_ = source_key(address_, 0);
  message_fragment_ = fragment_payload(capabilities.mtu, false);
  put_fragment_ = fragment_payload(capabilities.mtu, true);
  external_payload_ = capabilities.external_payload;
  UNET_CHECK(put_fragment_ != 0);
}

Port::~Port() {
  driver_->discard({empty_.data(), empty_count_});
  driver_->discard({staged_.data(), staged_count_});
}

bool Port::refill() noexcept {
  empty_.fill({});
  empty_count_ = driver_->allocate(empty_);
  return empty_count_ != 0;
}

void Port::flush(Nanoseconds now) noexcept {
  if (staged_count_ == 0) return;
  const uint32_t taken = driver_->transmit({staged_.data(), staged_count_}, now);
  if (taken == 0) return;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < taken; ++i) bytes += uint64_t{staged_[i].length} + staged_[i].external_length;
  counters_.add(NiCounter::transmitted_frames, taken);
  counters_.add(NiCounter::transmitted_bytes, bytes);
  std::move(staged_.begin() + taken, staged_.begin() + staged_count_, staged_.begin());
  staged_count_ -= taken;
}

}  // namespace unet::engine
