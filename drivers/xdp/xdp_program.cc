// xdp_program.cc - writes the program, loads it and attaches it.
#include "drivers/xdp/xdp_program.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "unet/wire/frame.h"

namespace unet::drivers {
namespace {

constexpr uint8_t kReturn = 0, kContext = 1, kArgument2 = 2, kArgument3 = 3, kScratch = 4;  // registers

bpf_insn instruction(int code, uint8_t to, uint8_t from, int16_t offset, int32_t value) noexcept {
  bpf_insn made{};
  made.code = static_cast<uint8_t>(code);
  made.dst_reg = to & 0xF;
  made.src_reg = from & 0xF;
  made.off = offset;
  made.imm = value;
  return made;
}

bpf_insn load(int size, uint8_t to, uint8_t from, size_t offset) noexcept {
  return instruction(BPF_LDX | BPF_MEM | size, to, from, static_cast<int16_t>(offset), 0);
}

// Skips `count` instructions if the lower half of the scratch register and the value are in `relation`.
bpf_insn skip_if(int relation, int32_t value, int16_t count) noexcept {
  return instruction(BPF_JMP32 | relation | BPF_K, kScratch, 0, count, value);
}

bpf_insn pass_in(uint8_t to) noexcept { return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, XDP_PASS); }

// The bytes at `from`, as a load of the processor finds them.
template <typename T>
int32_t word_at(const void* from) noexcept {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return static_cast<int32_t>(value);
}

std::vector<bpf_insn> write_program(const XdpProgramOptions& options, int sockets) {
  const uint8_t type[] = {kEtherType >> 8, kEtherType & 0xFF};
  // A jump skips that many instructions: those at 13 lead the frame to the socket, those at 19 leave it to the kernel.
  return {
      /* 0 */ load(BPF_W, kArgument2, kContext, offsetof(xdp_md, data)),
      /* 1 */ load(BPF_W, kArgument3, kContext, offsetof(xdp_md, data_end)),
      /* 2 */ instruction(BPF_ALU64 | BPF_MOV | BPF_X, kScratch, kArgument2, 0, 0),
      /* 3 */ instruction(BPF_ALU64 | BPF_ADD | BPF_K, kScratch, 0, 0, kEthernetBytes),
      /* 4 */ instruction(BPF_JMP | BPF_JGT | BPF_X, kScratch, kArgument3, 14, 0),
      /* 5 */ load(BPF_H, kScratch, kArgument2, 12),
      /* 6 */ options.all_types ? instruction(BPF_JMP | BPF_JA, 0, 0, 0, 0) : skip_if(BPF_JNE, word_at<uint16_t>(type), 12),
      /* 7 */ load(BPF_B, kScratch, kArgument2, 0),
      /* 8 */ skip_if(BPF_JSET, 1, 4),
      /* 9 */ load(BPF_W, kScratch, kArgument2, 0),
      /* 10 */ skip_if(BPF_JNE, word_at<uint32_t>(options.station.data()), 8),
      /* 11 */ load(BPF_H, kScratch, kArgument2, 4),
      /* 12 */ skip_if(BPF_JNE, word_at<uint16_t>(options.station.data() + 4), 6),
      /* 13 */ load(BPF_W, kArgument2, kContext, offsetof(xdp_md, rx_queue_index)),
      /* 14 */ instruction(BPF_LD | BPF_IMM | BPF_DW, kContext, BPF_PSEUDO_MAP_FD, 0, sockets),
      /* 15 */ instruction(0, 0, 0, 0, 0),
      /* 16 */ pass_in(kArgument3),  // for queues without a socket
      /* 17 */ instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map),
      /* 18 */ instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
      /* 19 */ pass_in(kReturn),
      /* 20 */ instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
  };
}

}  // namespace

tl::unexpected<Error> refuse_xdp(const std::string& port, const std::string& call, int error) {
  const auto refuse = [&](Errc code, const char* what) { return fail(code, port + ": " + call + ": " + std::strerror(error) + what); };
  switch (error) {
    case EPERM:
    case EACCES:
      return refuse(Errc::not_permitted, ": needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run as root, or give the program the "
                                         "capabilities (`setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`), or use packet:");
    case EBUSY:
    case EEXIST:
      return refuse(Errc::already_exists, ": another program has an AF_XDP socket or an XDP program on it (`ip link show`); `ip link set "
                                          "INTERFACE xdp off` removes one that was left behind");
    case ENOMEM:
    case ENOBUFS: return refuse(Errc::out_of_memory, ": a limit of locked memory may be in the way: `ulimit -l unlimited`");
    default:
      return refuse(Errc::unavailable, ": this kernel or the interface's driver has no XDP, or cannot use it now: a smaller MTU, fewer "
                                       "queues or `ethtool -K INTERFACE lro off` may help; packet: works without XDP");
  }
}

Result<Descriptor> attach_xdp_program(const XdpProgramOptions& options, int socket, uint32_t queue) {
  const Descriptor sockets(bpf_map_create(BPF_MAP_TYPE_XSKMAP, "unet_xdp", sizeof queue, sizeof socket, queue + 1, nullptr));
  if (!sockets.valid()) return refuse_xdp(options.port, "BPF_MAP_CREATE", errno);
  const std::vector<bpf_insn> program = write_program(options, sockets.get());
  const bpf_prog_load_opts how{.sz = sizeof how, .expected_attach_type = BPF_XDP, .prog_flags = options.pieces ? BPF_F_XDP_HAS_FRAGS : 0u};
  const Descriptor loaded(bpf_prog_load(BPF_PROG_TYPE_XDP, "unet_xdp", "BSD", program.data(), program.size(), &how));
  if (!loaded.valid()) return refuse_xdp(options.port, "BPF_PROG_LOAD", errno);
  if (bpf_map_update_elem(sockets.get(), &queue, &socket, BPF_ANY) != 0) return refuse_xdp(options.port, "BPF_MAP_UPDATE_ELEM", errno);
  const auto index = static_cast<int>(if_nametoindex(options.interface.c_str()));
  int error = 0;
  for (const uint32_t mode : {0u, uint32_t{XDP_FLAGS_SKB_MODE}}) {  // 0: the driver's own XDP, if it has one
    const bpf_link_create_opts where{.sz = sizeof where, .flags = mode};
    Descriptor link(bpf_link_create(loaded.get(), index, BPF_XDP, &where));
    if (link.valid()) return link;
    if (mode == 0) error = errno;
    if (error == EBUSY || error == EEXIST || error == EPERM) break;
  }
  return refuse_xdp(options.port, "BPF_LINK_CREATE", error);
}

}  // namespace unet::drivers
