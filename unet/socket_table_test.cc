// socket_table_test.cc - slots that are read during writes, and tables with false contents.
#include "unet/socket_table.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>

namespace unet::socket_table_test {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};
struct Memory {
  explicit Memory(uint32_t number) : geometry(SocketTableGeometry::of_table(number)), lines(new Line[geometry.total / 64]()) {}
  SocketTableView view() const { return SocketTableView(lines[0].bytes, geometry); }
  SocketTableGeometry geometry;
  std::unique_ptr<Line[]> lines;
};

SocketRecord record(uint32_t number) {
  return {.protocol = 6, .local_port = static_cast<uint16_t>(number), .receive_queue = number, .send_queue = ~number,
          .send_next = number * 3, .told = number};
}

}  // namespace

TEST_CASE("every socket has one place in one table") {
  uint32_t first = 0;
  for (uint32_t table = 0; table < kSocketTablesMax; ++table) {
    const uint32_t sockets = SocketTableGeometry::of_table(table).sockets;
    CHECK(socket_table_begin(table) == first);
    CHECK(socket_table_of(first) == table);
    CHECK(socket_table_of(first + sockets - 1) == table);
    first += sockets;
  }
  CHECK(first == kSocketsTold);
  CHECK(socket_table_of(first) == kSocketTablesMax);
  CHECK(kSocketsTold >= 100'000);
}

TEST_CASE("what was written is read, and what has never been is no socket") {
  const Memory memory(0);
  SocketRecord read;
  REQUIRE(memory.view().slot(5).read(read));
  CHECK(read.protocol == 0);
  memory.view().slot(5).write(record(77));
  REQUIRE(memory.view().slot(5).read(read));
  CHECK(read.local_port == 77);
  CHECK(read.send_queue == ~77u);
  SocketInfo info{.told = 9, .bytes_sent = 10};
  memory.view().info(4095).write(info);
  info = {};
  REQUIRE(memory.view().info(4095).read(info));
  CHECK(info.bytes_sent == 10);
}

TEST_CASE("a reader that is overtaken gives up, and never has half of two") {
  const Memory memory(0);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint32_t i = 1; !done.load(std::memory_order_relaxed); ++i) memory.view().slot(0).write(record(i));
  });
  for (SocketRecord read; !memory.view().slot(0).read(read) || read.protocol == 0;) std::this_thread::yield();
  uint32_t whole = 0;
  for (int i = 0; i < 200'000; ++i) {
    SocketRecord read;
    if (!memory.view().slot(0).read(read) || read.protocol == 0) continue;
    ++whole;
    const uint32_t number = read.receive_queue;
    if (read.send_queue != ~number || read.send_next != number * 3 || read.told != number) FAIL("half of two records");
  }
  done.store(true, std::memory_order_relaxed);
  writer.join();
  SocketRecord last;
  CHECK(memory.view().slot(0).read(last));
  CHECK(last.protocol == 6);
  INFO(whole << " were whole");
}

TEST_CASE("a table that lies is read in bounded time and place") {
  const Memory memory(0);
  memory.view().header().used.store(~uint32_t{0}, std::memory_order_relaxed);
  CHECK(memory.view().used() == kSocketTableFirst);
  std::memset(static_cast<void*>(memory.lines.get()), 0xFF, memory.geometry.total);
  SocketRecord read;
  for (uint32_t i = 0; i < memory.view().used(); ++i) CHECK_FALSE(memory.view().slot(i).read(read));  // always being written
  memory.view().slot(0).copy(read);
  CHECK(read.local_port == 0xFFFF);
}

}  // namespace unet::socket_table_test
