// pcapng.cc - blocks: type, length, body, options, length again; everything is padded to four bytes.
#include "drivers/capture/pcapng.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

namespace unet::drivers {

namespace {

constexpr uint32_t kSection = 0x0A0D0D0A, kInterface = 1, kStatistics = 5, kPacket = 6;
constexpr uint32_t kByteOrder = 0x1A2B3C4D;
constexpr uint16_t kEthernet = 1;
constexpr uint16_t kEnd = 0;

constexpr size_t padded(size_t size) noexcept { return (size + 3) / 4 * 4; }

// One block. The destructor fills in its length.
class Block {
 public:
  Block(std::vector<std::byte>& file, uint32_t type) : file_(file), start_(file.size()) {
    put(type);
    put(uint32_t{0});
  }
  ~Block() {
    const auto length = static_cast<uint32_t>(file_.size() - start_ + sizeof(uint32_t));
    put(length);
    std::memcpy(file_.data() + start_ + sizeof(uint32_t), &length, sizeof length);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <typename T>
  void put(T value) {
    std::array<std::byte, sizeof(T)> raw;
    std::memcpy(raw.data(), &value, sizeof value);
    file_.insert(file_.end(), raw.begin(), raw.end());
  }
  void put_bytes(std::span<const std::byte> bytes) {
    file_.insert(file_.end(), bytes.begin(), bytes.end());
    file_.resize(start_ + padded(file_.size() - start_));
  }
  void put_time(uint64_t time) {
    put(static_cast<uint32_t>(time >> 32));
    put(static_cast<uint32_t>(time));
  }
  void option(uint16_t code, std::span<const std::byte> value) {
    put(code);
    put(static_cast<uint16_t>(value.size()));
    put_bytes(value);
  }
  void option(uint16_t code, const std::string& value) { option(code, std::as_bytes(std::span(value.data(), value.size()))); }
  template <typename T>
  void option_value(uint16_t code, T value) { option(code, std::as_bytes(std::span(&value, 1))); }
  void end_options() {
    put(kEnd);
    put(uint16_t{0});
  }

 private:
  std::vector<std::byte>& file_;
  size_t start_;
};

constexpr size_t packet_size(size_t captured) noexcept { return 28 + padded(captured) + 12 + 4; }
constexpr size_t kStatisticsSize = 8 + 4 + 8 + 2 * 12 + 4 + 4;

// Bytes of the whole blocks among the first `size` bytes.
size_t whole_blocks(const std::vector<std::byte>& blocks, size_t size) noexcept {
  size_t at = 0;
  for (uint32_t length = 0; at + 8 <= size; at += length) {
    std::memcpy(&length, blocks.data() + at + 4, sizeof length);
    if (length > size - at) break;
  }
  return at;
}

}  // namespace

PcapngFile::PcapngFile(int descriptor, uint64_t limit, const Interface& interface) : descriptor_(descriptor), limit_(limit) {
  {
    Block section(out_, kSection);
    section.put(kByteOrder);
    section.put(uint16_t{1});
    section.put(uint16_t{0});
    section.put(~uint64_t{0});  // until the end of the file
    section.option(4, "U-Net");  // shb_userappl
    section.end_options();
  }
  Block block(out_, kInterface);
  block.put(kEthernet);
  block.put(uint16_t{0});
  block.put(interface.snap_length);
  block.option(2, interface.name.substr(0, 1000));  // if_name
  block.option(6, std::as_bytes(std::span(interface.address)));  // if_MACaddr
  block.option_value(9, uint8_t{9});  // if_tsresol: 10^-9 s
  if (!interface.filter.empty()) block.option(11, std::string(1, '\0') + interface.filter.substr(0, 1000));  // if_filter, libpcap's
  block.end_options();
}

bool PcapngFile::add(const CaptureRecord& record, Bytes frame, uint64_t epoch) {
  if (limit_ != 0 && written() + out_.size() + packet_size(frame.size()) + kStatisticsSize > limit_) return false;
  Block block(out_, kPacket);
  block.put(uint32_t{0});  // interface number
  block.put_time(epoch + record.time);
  block.put(static_cast<uint32_t>(frame.size()));
  block.put(record.length);
  block.put_bytes(frame);
  block.option_value(2, record.outbound != 0 ? 2u : 1u);  // epb_flags: outbound, inbound
  block.end_options();
  return true;
}

void PcapngFile::add_statistics(uint64_t time, uint64_t seen, uint64_t dropped) {
  if (limit_ != 0 && written() + out_.size() + kStatisticsSize > limit_) return;
  Block block(out_, kStatistics);
  block.put(uint32_t{0});
  block.put_time(time);
  block.option_value(4, seen);     // isb_ifrecv
  block.option_value(5, dropped);  // isb_ifdrop
  block.end_options();
}

Status PcapngFile::flush(bool (*wait)(void*), void* context) {
  size_t done = 0;
  int error = 0;
  while (error == 0 && done < out_.size()) {
    const ssize_t n = write(descriptor_, out_.data() + done, out_.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (const int why = errno; why != EINTR && (why != EAGAIN || !wait(context))) {
      error = why;
      struct stat status{};
      const size_t whole = whole_blocks(out_, done);
      const off_t end = lseek(descriptor_, 0, SEEK_CUR) - static_cast<off_t>(done - whole);
      if (fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) && ftruncate(descriptor_, end) == 0) done = whole;
    }
  }
  written_.store(written() + done, std::memory_order_relaxed);
  out_.clear();
  if (error == 0) return {};
  return fail(Errc::unavailable, error == EAGAIN ? "nothing reads it" : std::generic_category().message(error));
}

}  // namespace unet::drivers
