// pcap_files.cc - reads frames from a file, and writes them to a file.
#include "drivers/pcap/pcap_files.h"

#include <fcntl.h>
#include <pcap/pcap.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "drivers/kernel_interface.h"
#include "drivers/private_file.h"

namespace unet::drivers {

namespace {

constexpr Nanoseconds kFlushAfter = 100 * kMillisecond;
constexpr int kSnapLength = 65535;

}  // namespace

Result<std::unique_ptr<PcapFiles>> PcapFiles::open(const PcapFilesOptions& options) {
  std::unique_ptr<PcapFiles> port(new PcapFiles(options));
  if (Status status = port->open_read(); !status) return tl::unexpected(status.error());
  if (Status status = port->open_write(); !status) return tl::unexpected(status.error());
  return port;
}

PcapFiles::PcapFiles(const PcapFilesOptions& options)
    : FramePort({.address = options.address, .mtu = options.mtu}), options_(options) {}

PcapFiles::~PcapFiles() {
  if (dumper_ != nullptr) pcap_dump_close(dumper_);
  if (writer_ != nullptr) pcap_close(writer_);
  if (reader_ != nullptr) pcap_close(reader_);
}

Status PcapFiles::open_read() {
  if (options_.read.empty()) return {};
  if (stat(options_.read.c_str(), &read_status_) == 0 && !S_ISREG(read_status_.st_mode)) {
    return fail(Errc::invalid_argument, "pcap: read=" + options_.read + ": is not a regular file; the engine would wait for it");
  }
  if (options_.read == "-") return fail(Errc::invalid_argument, "pcap: read=-: name a file; ./- is one called -");
  char error[PCAP_ERRBUF_SIZE] = "";
  reader_ = pcap_open_offline_with_tstamp_precision(options_.read.c_str(), PCAP_TSTAMP_PRECISION_NANO, error);
  if (reader_ == nullptr) return fail(Errc::unavailable, "pcap: read=" + options_.read + ": " + error);
  if (pcap_datalink(reader_) != DLT_EN10MB) {
    const char* const name = pcap_datalink_val_to_name(pcap_datalink(reader_));
    return fail(Errc::invalid_argument, "pcap: read=" + options_.read + ": holds frames of type " + (name != nullptr ? name : "unknown") +
                                            ", and only Ethernet can be replayed");
  }
  look_ahead();
  return {};
}

Status PcapFiles::open_write() {
  if (options_.write.empty()) return {};
  writer_ = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, kSnapLength, PCAP_TSTAMP_PRECISION_NANO);
  if (writer_ == nullptr) return fail(Errc::out_of_memory, "pcap: write=" + options_.write + ": no memory");
  // Do not truncate the file before its type is known.
  const Result<int> opened = open_private_file(options_.write, O_NONBLOCK, false);
  if (!opened) return fail(opened.error().code, "pcap: write=" + opened.error().text);
  const int file = *opened;
  const auto refuse = [&](Errc code, const std::string& why) {
    close(file);
    return fail(code, "pcap: write=" + options_.write + ": " + why);
  };
  struct stat status{};
  if (fstat(file, &status) != 0) return refuse(Errc::unavailable, std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
    return refuse(Errc::invalid_argument, "is not a regular file; the engine would wait for it");
  }
  if (!options_.read.empty() && status.st_dev == read_status_.st_dev && status.st_ino == read_status_.st_ino) {
    return refuse(Errc::invalid_argument, "it is the file to read");
  }
  if (S_ISREG(status.st_mode) && ftruncate(file, 0) != 0) return refuse(Errc::unavailable, std::generic_category().message(errno));
  std::FILE* const stream = fdopen(file, "wb");
  if (stream == nullptr) return refuse(Errc::out_of_memory, "no memory");
  dumper_ = pcap_dump_fopen(writer_, stream);
  if (dumper_ == nullptr) return fail(Errc::unavailable, "pcap: write=" + options_.write + ": " + pcap_geterr(writer_));  // it closed it
  return {};
}

// Skips frames that no port of this MTU could have received. A damaged file ends at the damage.
void PcapFiles::look_ahead() noexcept {
  next_length_ = 0;
  pcap_pkthdr* header = nullptr;
  const u_char* bytes = nullptr;
  while (reader_ != nullptr && counters_.rx_ended == 0) {
    const int result = pcap_next_ex(reader_, &header, &bytes);
    if (result != 1) {
      counters_.rx_ended = 1;
      if (result != PCAP_ERROR) return;
      ++counters_.rx_errors;
      state_->say("pcap: read=" + options_.read + ": packet " + std::to_string(packets_ + 1) + " is damaged, and reading ends there: " +
                  pcap_geterr(reader_));
      return;
    }
    ++packets_;
    if (header->caplen < header->len || header->len == 0 || !fits(header->len)) {
      ++counters_.rx_oversize;
      continue;
    }
    next_ = bytes;
    next_length_ = header->len;
    // With PCAP_TSTAMP_PRECISION_NANO, tv_usec holds nanoseconds.
    next_captured_ = static_cast<Nanoseconds>(header->ts.tv_sec) * kSecond + static_cast<Nanoseconds>(header->ts.tv_usec);
    return;
  }
}

Nanoseconds PcapFiles::next_event() const noexcept {
  if (next_length_ == 0) return next_flush_;
  if (!options_.timed || !begun_ || next_captured_ <= first_captured_) return 0;
  return started_ + (next_captured_ - first_captured_);
}

uint32_t PcapFiles::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  if (next_length_ == 0) return 0;
  if (!begun_) {
    begun_ = true;
    started_ = now;
    first_captured_ = next_captured_;
  }
  uint32_t count = 0;
  for (const uint32_t wanted = places(frames.size()); count < wanted && next_length_ != 0 && next_event() <= now;) {
    frames[count++] = keep(next_, next_length_);
    ++counters_.rx_frames;
    counters_.rx_bytes += next_length_;
    look_ahead();
  }
  return count;
}

bool PcapFiles::write(const TransmitFrame& frame, Nanoseconds now) noexcept {
  if (ferror(pcap_dump_file(dumper_)) != 0) return false;
  if (epoch_ == 0) epoch_ = wall_now() - now;
  pcap_pkthdr header{};
  header.ts.tv_sec = static_cast<time_t>((epoch_ + now) / kSecond);
  header.ts.tv_usec = static_cast<suseconds_t>((epoch_ + now) % kSecond);
  header.len = header.caplen = frame.length;
  pcap_dump(reinterpret_cast<u_char*>(dumper_), &header, reinterpret_cast<const u_char*>(frame.data));
  return ferror(pcap_dump_file(dumper_)) == 0;
}

uint32_t PcapFiles::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  for (const TransmitFrame& frame : frames) {
    if (dumper_ == nullptr || write(frame, now)) {
      ++counters_.tx_frames;
      counters_.tx_bytes += frame.length;
    } else {
      ++counters_.tx_errors;
    }
  }
  if (dumper_ != nullptr && !frames.empty() && next_flush_ == ~Nanoseconds{0}) next_flush_ = now + kFlushAfter;
  discard(frames);
  return static_cast<uint32_t>(frames.size());
}

// Flushes, so that readers of the file see frames shortly after they were sent.
void PcapFiles::poll(Nanoseconds now) noexcept {
  if (now < next_flush_) return;
  next_flush_ = ~Nanoseconds{0};
  if (pcap_dump_flush(dumper_) != 0) ++counters_.tx_errors;
}

std::vector<DriverCounter> PcapFiles::counters() const {
  const Counters& c = counters_;
  return {{"rx_frames", c.rx_frames}, {"rx_bytes", c.rx_bytes}, {"rx_oversize", c.rx_oversize}, {"rx_errors", c.rx_errors},
          {"rx_ended", c.rx_ended},   {"tx_frames", c.tx_frames}, {"tx_bytes", c.tx_bytes},     {"tx_errors", c.tx_errors}};
}

std::string PcapFiles::description() const {
  std::string text = "pcap:";
  if (!options_.read.empty()) text += "read=" + options_.read;
  if (!options_.write.empty()) text += (options_.read.empty() ? "write=" : ",write=") + options_.write;
  return text + " " + mac_text(capabilities().address).data() + " mtu " + std::to_string(capabilities().mtu);
}

}  // namespace unet::drivers
