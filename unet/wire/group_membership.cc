// group_membership.cc - writes the records of IGMP and MLD reports.
#include "unet/wire/group_membership.h"

#include <cstring>

namespace unet::ip {
namespace {

struct ReportHeader {
  uint8_t type, reserved;
  uint16_t checksum;
  be16 reserved_too, records;
};
static_assert(sizeof(ReportHeader) == kGroupReportBytes);

struct RecordHeader {
  uint8_t kind, auxiliary;
  be16 sources;
};
static_assert(sizeof(RecordHeader) == 4);

}  // namespace

void GroupReportWriter::begin(GroupRecord record, const IpAddress& group, uint32_t sources) noexcept {
  const RecordHeader header{.kind = static_cast<uint8_t>(record), .auxiliary = 0, .sources = static_cast<uint16_t>(sources)};
  std::memcpy(room_.data() + size_, &header, sizeof header);
  size_ += static_cast<uint32_t>(sizeof header);
  append(group);
  ++records_;
}

void GroupReportWriter::append(const IpAddress& source) noexcept {
  const size_t size = ipv4_ ? 4 : 16;
  std::memcpy(room_.data() + size_, source.wire(), size);
  size_ += static_cast<uint32_t>(size);
}

uint32_t GroupReportWriter::finish(uint8_t type) noexcept {
  ReportHeader header{};
  header.type = type;
  header.records = static_cast<uint16_t>(records_);
  std::memcpy(room_.data(), &header, sizeof header);
  return size_;
}

}  // namespace unet::ip
