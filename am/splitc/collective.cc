// collective.cc - collectives of many values, as stores.
#include "am/splitc/collective.h"

#include <array>

namespace unet::splitc::detail {
namespace {

// Each rank begins with its neighbour, so that not all store to the same rank.
Rank after(const Node& node, uint32_t distance) noexcept { return (node.rank() + distance) % node.size(); }

// Waits until all stores have arrived, and checks that all have called with the same size and root.
void sync_stores(Node& node, Call call, uint64_t bytes, Rank root = 0) {
  const std::array<uint64_t, 2> arguments{bytes, root};
  node.all_store_sync(call, as_bytes(arguments.data(), sizeof arguments));
}

const std::byte* piece(const void* from, Rank rank, uint64_t bytes) noexcept { return static_cast<const std::byte*>(from) + rank * bytes; }

}  // namespace

// A binomial tree: in each round the ranks that have the data store it to as many that have not. A receiver counts its bytes.
void broadcast(uint64_t offset, uint64_t bytes, Rank root) {
  Node& node = *current_node;
  node.check_rank(root, to_string(Call::all_bulk_broadcast));
  sync_stores(node, Call::all_bulk_broadcast, bytes, root);  // earlier stores no longer count, and no rank uses the data
  const uint32_t place = (node.rank() + node.size() - root) % node.size();  // root's is 0
  const void* const own = node.local(Address(node.rank(), offset), bytes, to_string(Call::all_bulk_broadcast));
  for (uint32_t have = 1; have < node.size(); have *= 2) {
    if (place >= have && place < 2 * have) node.store_sync(bytes);
    if (place < have && place + have < node.size()) {
      node.bulk_store(Address(after(node, have), offset), own, bytes, to_string(Call::all_bulk_broadcast));
    }
  }
  node.all_store_sync();
}

void store_to_all(uint64_t offset, const void* from, uint64_t bytes) {
  Node& node = *current_node;
  for (uint32_t distance = 1; distance <= node.size(); ++distance) {
    node.bulk_store(Address(after(node, distance), offset), from, bytes, to_string(Call::all_bulk_gather));
  }
  sync_stores(node, Call::all_bulk_gather, bytes);
}

void store_to_each(uint64_t offset, const void* from, uint64_t bytes) {
  Node& node = *current_node;
  for (uint32_t distance = 1; distance <= node.size(); ++distance) {
    const Rank rank = after(node, distance);
    node.bulk_store(Address(rank, offset), piece(from, rank, bytes), bytes, to_string(Call::all_to_all));
  }
  sync_stores(node, Call::all_to_all, bytes);
}

void store_from(Rank root, uint64_t offset, const void* from, uint64_t bytes) {
  Node& node = *current_node;
  node.check_rank(root, to_string(Call::all_bulk_scatter));
  for (uint32_t distance = 1; distance <= node.size() && node.rank() == root; ++distance) {
    const Rank rank = after(node, distance);
    node.bulk_store(Address(rank, offset), piece(from, rank, bytes), bytes, to_string(Call::all_bulk_scatter));
  }
  sync_stores(node, Call::all_bulk_scatter, bytes, root);
}

}  // namespace unet::splitc::detail
