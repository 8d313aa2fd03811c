// record.cc - one list of fields per kind of record, by which records are measured, written and read.
#include "am/rpc/port/record.h"

#include <cstring>

namespace unet::rpc {
namespace {

struct Measure {
  uint32_t size = 0;
  template <typename T>
  void number(T&) noexcept {
    size += sizeof(T);
  }
  void text(std::string& text) noexcept { size += 1 + static_cast<uint32_t>(text.size()); }
  bool list(std::vector<RightDescriptor>& rights) noexcept { return ++size, !rights.empty(); }
};

struct Writer {
  std::byte* at;
  template <typename T>
  void number(T& value) noexcept {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  }
  void text(std::string& text) noexcept {
    auto size = static_cast<uint8_t>(text.size());
    number(size);
    std::memcpy(at, text.data(), size);
    at += size;
  }
  bool list(std::vector<RightDescriptor>& rights) noexcept {
    auto count = static_cast<uint8_t>(rights.size());
    number(count);
    return count != 0;
  }
};

struct Reader {
  Bytes rest;
  bool sound = true;
  template <typename T>
  void number(T& value) noexcept {
    if (rest.size() < sizeof value) {
      sound = false;
      return;
    }
    std::memcpy(&value, rest.data(), sizeof value);
    rest = rest.subspan(sizeof value);
  }
  void text(std::string& text) {
    uint8_t size = 0;
    number(size);
    if (size > rest.size()) {
      sound = false;
      return;
    }
    text.assign(reinterpret_cast<const char*>(rest.data()), size);
    rest = rest.subspan(size);
  }
  bool list(std::vector<RightDescriptor>& rights) {
    uint8_t count = 0;
    number(count);
    if (count > kRightsMax) sound = false;
    if (sound) rights.resize(count);
    return !rights.empty();
  }
};

template <typename Archive>
void visit_key(Archive& archive, PortKey& key) {
  archive.number(key.first);
  archive.number(key.second);
}

template <typename Archive>
void visit_error(Archive& archive, PortError& error) {
  auto value = static_cast<uint8_t>(error);
  archive.number(value);
  if constexpr (std::is_same_v<Archive, Reader>) archive.sound = archive.sound && value <= kPortErrorMax;
  error = static_cast<PortError>(value);
}

template <typename Archive>
void visit_flag(Archive& archive, bool& flag) {
  auto value = static_cast<uint8_t>(flag);
  archive.number(value);
  flag = value != 0;
}

template <typename Archive>
void visit_rights(Archive& archive, std::vector<RightDescriptor>& rights) {
  if (!archive.list(rights)) return;
  for (RightDescriptor& right : rights) {
    visit_flag(archive, right.receive);
    visit_error(archive, right.error);
    archive.number(right.number);
    archive.number(right.transit);
    visit_key(archive, right.key);
    archive.text(right.space);
  }
}

// The fields of each kind behind the kind itself. Returns false for an unknown kind.
template <typename Archive>
bool visit(Archive& archive, Record& record) {
  const auto numbers = [&](auto&... fields) { (archive.number(fields), ...); };
  switch (record.kind) {
    case RecordKind::attach:
      numbers(record.to, record.from, record.stream, record.flags);
      visit_key(archive, record.key);
      return true;
    case RecordKind::attached: return numbers(record.to, record.from, record.sequence), true;
    case RecordKind::refused: return numbers(record.to, record.from), visit_error(archive, record.error), true;
    case RecordKind::moved: return numbers(record.to, record.from, record.number), archive.text(record.name), true;
    case RecordKind::detach:
    case RecordKind::done:
    case RecordKind::opened: return numbers(record.to), true;
    case RecordKind::message:
      numbers(record.to, record.sequence, record.total, record.flags);
      if ((record.flags & RecordFlags::kPiece) != 0) archive.number(record.offset);
      visit_rights(archive, record.rights);
      return true;
    case RecordKind::ack: return numbers(record.to, record.sequence, record.offset, record.flags), true;
    case RecordKind::claim: return numbers(record.to, record.number), archive.text(record.name), true;
    case RecordKind::state: return numbers(record.to, record.number, record.flags), visit_key(archive, record.key), true;
    case RecordKind::sender: return numbers(record.to, record.stream, record.sequence), true;
    case RecordKind::sender_gone: return numbers(record.to, record.stream), true;
    case RecordKind::look_up: return numbers(record.from), archive.text(record.name), true;
    case RecordKind::found: return numbers(record.to), visit_rights(archive, record.rights), true;
  }
  return false;
}

}  // namespace

std::string_view to_string(PortError error) noexcept {
  switch (error) {
    case PortError::none: return "none";
    case PortError::dead_name: return "dead_name";
    case PortError::bad_right: return "bad_right";
    case PortError::no_room: return "no_room";
    case PortError::not_found: return "not_found";
    case PortError::unreachable: return "unreachable";
    case PortError::too_long: return "too_long";
    case PortError::lost: return "lost";
  }
  return "unknown";
}

// Measure and Writer do not change a record, but share the list of fields with Reader, which does.
uint32_t head_size(const Record& record) {
  Measure measure{.size = 1};
  visit(measure, const_cast<Record&>(record));
  return measure.size;
}

uint32_t encode_record(const Record& record, std::byte* to) {
  Writer writer{to + 1};
  *to = static_cast<std::byte>(record.kind);
  visit(writer, const_cast<Record&>(record));
  if (!record.body.empty()) copy_bytes(writer.at, record.body.data(), record.body.size());
  return static_cast<uint32_t>(writer.at - to + static_cast<ptrdiff_t>(record.body.size()));
}

std::optional<Record> decode_record(Bytes from) {
  Record record;
  Reader reader{from};
  reader.number(record.kind);
  if (!reader.sound || !visit(reader, record) || !reader.sound) return std::nullopt;
  if (record.kind == RecordKind::message) {
    record.body = reader.rest;
  } else if (!reader.rest.empty()) {
    return std::nullopt;
  }
  return record;
}

}  // namespace unet::rpc
