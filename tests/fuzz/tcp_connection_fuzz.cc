// tcp_connection_fuzz.cc - any segments and commands at any time to a TCP connection: it keeps its bounds, its segments parse, and it
// returns all that it took from the pools.
#include <algorithm>
#include <array>

#include "ipstack/tcp/connection.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::tcp;

namespace {

constexpr uint32_t kChunks = 40, kRecords = 30;

// A segment as bytes, nearly valid unless the fuzzer chooses another number.
std::vector<std::byte> segment_of(FuzzInput& input, Sequence theirs, Sequence ours) {
  ip::TcpFields fields{.source_port = 9, .destination_port = 80};
  fields.flags = input.take<uint8_t>();
  fields.sequence = theirs + static_cast<uint32_t>(input.take<int16_t>());
  fields.acknowledgement = ours + static_cast<uint32_t>(input.take<int16_t>());
  fields.window = input.take<uint16_t>();
  const auto options = input.take<uint8_t>();
  fields.options.sack_permitted = (options & 1) != 0;
  fields.options.has_timestamps = (options & 2) != 0;
  if ((options & 4) != 0) fields.options.window_scale = input.take<uint8_t>();
  if ((options & 8) != 0) fields.options.mss = input.take<uint16_t>();
  if (fields.options.has_timestamps) {
    fields.options.timestamp = input.take<uint16_t>();
    fields.options.timestamp_echo = input.take<uint16_t>();
  }
  const uint32_t most = fields.options.has_timestamps ? 3 : 4;
  if ((fields.flags & ip::TcpFlags::kSyn) == 0) fields.options.sack_count = static_cast<uint8_t>(std::min<uint32_t>(options >> 5, most));
  for (uint32_t i = 0; i < fields.options.sack_count; ++i) {
    fields.options.sack[i].left = ours + static_cast<uint32_t>(input.take<int16_t>());
    fields.options.sack[i].right = fields.options.sack[i].left + input.take<uint16_t>();
  }
  if (ip::tcp_options_size(fields.options) > ip::kTcpOptionsMax) fields.options.sack_count = 0;
  std::vector<std::byte> bytes(ip::kTcpHeaderMax);
  bytes.resize(ip::emit_tcp(bytes.data(), fields));
  bytes.resize(bytes.size() + input.take<uint16_t>() % 3000);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto choice = input.take<uint8_t>();
  Options options;
  options.sack = (choice & 1) != 0;
  options.timestamps = (choice & 2) != 0;
  options.nagle = (choice & 4) != 0;
  options.ack_delay = (choice & 8) != 0 ? 40 * kMillisecond : 0;
  options.ack_gather = (choice & 8) == 0 ? kMillisecond : 0;
  options.congestion = (choice & 16) != 0 ? Algorithm::cubic : Algorithm::newreno;
  options.keep_alive_idle = (choice & 32) != 0 ? kSecond : 0;
  const auto more = input.take<uint8_t>();
  if ((choice & 128) != 0) options.congestion = Algorithm::bbr;
  options.ecn = static_cast<Ecn>(more % 3);
  options.pacing = (more & 4) != 0;
  options.hystart = (more & 8) != 0;
  options.forward_recovery = (more & 16) != 0;
  options.receive_buffer = options.send_buffer = 20'000;
  options.receive_buffer_max = options.send_buffer_max = (more & 32) != 0 ? 60'000 : 0;
  ChunkPool chunks(1024, kChunks);
  RecordPool records(kRecords);
  Counters counters;
  {
    const Resources resources{chunks, records, counters};
    Connection connection(options, resources, 80);
    const Sequence iss{input.take<uint32_t>()};
    Sequence theirs{input.take<uint32_t>()}, ours = iss + 1;
    Nanoseconds now = kSecond;
    const std::vector<std::byte> zeros(5000);
    if ((choice & 64) != 0) {
      connection.connect(9, iss, now);
      if ((more & 64) != 0) connection.fast_open(Bytes(zeros).first((more & 128) != 0 ? 8 : 0));
    } else {
      connection.listen(iss);
      if ((more & 64) != 0) connection.answer_fast_open((more & 128) != 0, Bytes(zeros).first(16));
    }
    while (!input.empty()) {
      const auto what = input.take<uint8_t>();
      now += Nanoseconds{input.take<uint8_t>()} << (what >> 3);
      switch (what & 7) {
        case 0: case 1: case 2: {
          const bool raw = (what & 128) != 0;
          const std::vector<std::byte> bytes = raw ? input.take_bytes(input.take<uint8_t>()) : segment_of(input, theirs, ours);
          ip::TcpView view;
          if (ip::parse_tcp(bytes, view) == ip::TcpError::none) connection.handle_segment(view, now, input.take<uint8_t>() & 3);
          break;
        }
        case 3: connection.send(Bytes(zeros).first(input.take<uint16_t>() % zeros.size())); break;
        case 4: {
          std::vector<std::byte> into(input.take<uint16_t>() % 5000);
          connection.receive(into);
          break;
        }
        case 5:
          connection.handle_timer(now);
          if ((what & 192) == 64) connection.handle_error(static_cast<PathError>(input.take<uint8_t>() % 8), now);
          if ((what & 192) == 128) connection.handle_too_big(input.take<uint16_t>(), now);
          break;
        case 6:
          if ((what & 128) != 0) connection.shutdown();
          if ((what & 192) == 64) connection.set_congestion(static_cast<Algorithm>(input.take<uint8_t>() % kAlgorithmCount), now);
          break;
        case 7: if ((what & 240) == 240) connection.close(now); break;
      }
      UNET_CHECK(connection.congestion().window() <= 1u << 30);
      if (connection.congestion().is_bbr()) {
        const Bbr& bbr = connection.congestion().bbr();
        UNET_CHECK(bbr.pacing_rate() >= 0 && bbr.pacing_rate() <= 1e12);
      }
      Segment segment;
      for (uint32_t count = 0; connection.poll_segment(now, 4000, segment); ++count) {
        UNET_CHECK(count < 10'000);
        std::array<Bytes, 16> pieces;
        uint32_t length = 0;
        for (uint32_t i = 0, some = connection.gather(segment, pieces); i < some; ++i) length += static_cast<uint32_t>(pieces[i].size());
        UNET_CHECK(length == segment.length);
        std::array<std::byte, ip::kTcpHeaderMax> head;
        ip::TcpView again;
        const uint32_t emitted = ip::emit_tcp(head.data(), segment.fields);
        UNET_CHECK(emitted <= head.size() && ip::parse_tcp(Bytes(head).first(emitted), again) == ip::TcpError::none);
        if ((segment.fields.flags & ip::TcpFlags::kRst) != 0) continue;
        ours = segment.fields.sequence + segment.length + ((segment.fields.flags & ip::TcpFlags::kSyn) != 0 ? 1u : 0u);
        if ((segment.fields.flags & ip::TcpFlags::kAck) != 0) theirs = segment.fields.acknowledgement;
      }
      UNET_CHECK(connection.readable() <= std::max(options.receive_buffer, options.receive_buffer_max));
      connection.info(now);
    }
  }
  UNET_CHECK(chunks.available() == kChunks && records.available() == kRecords);
  return 0;
}
