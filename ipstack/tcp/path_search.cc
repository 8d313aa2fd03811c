// path_search.cc - the sizes of path MTU probes.
#include "ipstack/tcp/path_search.h"

#include <algorithm>
#include <utility>

namespace unet::tcp {
namespace {

constexpr uint16_t kBase = 1024;            // payload and options that nearly every path carries (RFC 4821, 7.2, less 40 for headers)
constexpr uint16_t kNear = 8;               // bytes: the search stops at this precision
constexpr uint32_t kSearchInterval = 600;   // seconds (RFC 8899, 5.1.1, PMTU_RAISE_TIMER)

uint32_t seconds(Nanoseconds now) noexcept { return static_cast<uint32_t>(now / kSecond); }

}  // namespace

void PathSearch::start(uint16_t most, const Options& options, Nanoseconds now) noexcept {
  most_ = most;
  const uint16_t base = options.mtu_probing == MtuProbing::on ? std::max(kBase, options.default_mss) : most_;
  passes_ = std::min(most_, known_ ? passes_ : base);
  const bool less = passes_ < most_;
  active_ = options.mtu_probing == MtuProbing::on || (less && options.mtu_probing == MtuProbing::black_hole);
  search_at_ = seconds(now) + (known_ ? kSearchInterval : 0);
}

uint16_t PathSearch::take_news() noexcept {
  if (!news_) return 0;
  news_ = false;
  return passes_;
}

uint16_t PathSearch::next_size(uint16_t most, Nanoseconds now) noexcept {
  if (static_cast<int32_t>(seconds(now) - search_at_) < 0) return 0;
  if (most_ <= passes_ || (halves_ && most_ < passes_ + kNear)) {
    search_at_ = seconds(now) + kSearchInterval;
    most_ = most;
    halves_ = false;
    return 0;
  }
  return halves_ ? static_cast<uint16_t>((passes_ + most_ + 1) / 2) : most_;
}

void PathSearch::handle_arrival(uint16_t most, Nanoseconds now) noexcept {
  suspected_ = false;
  passes_ = std::exchange(probe_, uint16_t{0});
  news_ = true;
  if (passes_ < most_) return;
  most_ = most;
  search_at_ = seconds(now) + kSearchInterval;
  halves_ = false;
}

void PathSearch::handle_loss() noexcept {
  most_ = static_cast<uint16_t>(probe_ - 1);
  halves_ = true;
  probe_ = 0;
  news_ = news_ || suspected_;
  suspected_ = false;
}

void PathSearch::give_up(Nanoseconds now) noexcept {
  probe_ = 0;
  search_at_ = seconds(now) + 2;
}

void PathSearch::drop_probe() noexcept {
  probe_ = 0;
  halves_ = false;
}

bool PathSearch::handle_too_big(uint16_t size, const Options& options, Nanoseconds now) noexcept {
  most_ = std::min(most_, size);
  if (size >= passes_) return false;
  search_at_ = seconds(now) + kSearchInterval;
  active_ = active_ || options.mtu_probing != MtuProbing::off;  // the PMTU may grow again
  passes_ = size;
  news_ = true;
  return true;
}

bool PathSearch::handle_black_hole(uint32_t lost, const Options& options, Nanoseconds now) noexcept {
  // A segment may be shorter than the MSS and yet too long: SACK blocks take space, and the last segment is often partial.
  const auto longest = static_cast<uint16_t>(std::min<uint32_t>(lost, passes_));
  const uint16_t base = std::max(kBase, options.default_mss);
  const uint16_t size = longest > base ? base : std::max<uint16_t>(longest / 2, std::max(options.default_mss, kMssMin));
  if (size >= longest) return false;
  most_ = passes_;
  active_ = true;
  halves_ = false;
  search_at_ = seconds(now) + 1;
  passes_ = size;
  // The link may simply have been down. Report the size only when a longer segment is lost among shorter ones.
  news_ = false;
  suspected_ = true;
  return true;
}

}  // namespace unet::tcp
