// parse_frame_fuzz.cc - any bytes as a frame, with the crc as given or corrected: accepted fields are in range, and emitting them gives the
// same bytes.
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"
#include "unet/base/crc32c.h"
#include "unet/wire/frame.h"

using namespace unet;

namespace {

// Corrects the crc, which the fuzzer would not find.
void put_crc_right(std::vector<std::byte>& frame) {
  FrameHeader header;
  if (frame.size() < sizeof(EthernetHeader) + sizeof header) return;
  std::byte* at = frame.data() + sizeof(EthernetHeader);
  std::memcpy(&header, at, sizeof header);
  const size_t rest = frame.size() - sizeof(EthernetHeader) - sizeof header;
  const size_t put = (header.flags & FrameFlags::kPut) != 0 ? sizeof(PutHeader) : 0;
  const size_t covered = std::min<size_t>(rest, put + header.length);
  const uint32_t crc = crc32c(kCrc32cStart, at, offsetof(FrameHeader, crc));
  header.crc = ~crc32c(crc, at + sizeof header, covered);
  std::memcpy(at, &header, sizeof header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const bool right_crc = (input.take<uint8_t>() & 1) != 0;
  std::vector<std::byte> frame = input.take_bytes(size);
  if (right_crc) put_crc_right(frame);

  FrameView view;
  if (parse_frame(frame, view) != FrameError::none) return 0;
  const size_t headers = header_size(view.flags);
  UNET_CHECK(view.payload.data() == frame.data() + headers && view.payload.size() <= frame.size() - headers);
  UNET_CHECK(view.total <= kMessageMax && view.offset <= view.total && view.payload.size() <= view.total - view.offset);
  UNET_CHECK(view.offset % kFragmentUnit == 0 && (view.flags & ~FrameFlags::kKnown) == 0);

  EthernetHeader ethernet;
  std::memcpy(&ethernet, frame.data(), sizeof ethernet);
  std::vector<std::byte> again(headers + view.payload.size());
  const FrameFields fields{.to = ethernet.to, .from = view.from, .tag = view.tag, .flags = view.flags, .message = view.message,
                           .offset = view.offset, .total = view.total, .region_offset = view.region_offset};
  std::copy(view.payload.begin(), view.payload.end(), again.begin() + static_cast<std::ptrdiff_t>(headers));
  UNET_CHECK(emit_frame(again.data(), fields, static_cast<uint32_t>(view.payload.size())) == again.size());
  UNET_CHECK(std::equal(again.begin(), again.end(), frame.begin()));
  return 0;
}
