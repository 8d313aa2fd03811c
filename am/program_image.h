// program_image.h - places of this program's functions, in terms that all processes that run it share; used by GAM and Split-C.
#pragma once

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace unet::am {

// The program's file as loaded in this process. Its shared libraries do not count: they may lie elsewhere in each process.
class ProgramImage {
 public:
  ProgramImage() {
    dl_iterate_phdr([](dl_phdr_info* info, size_t, void* self) {
      static_cast<ProgramImage*>(self)->look(*info);
      return 1;  // the first one is the program
    }, this);
  }

  // Equal for two processes that run the same file: hashes its segments' places and sizes, and its notes, which include the build id.
  uint64_t fingerprint() const noexcept { return fingerprint_; }

  // base() is the load address. holds() tells whether an address belongs to the program: a function, variable or constant. Such an object
  // has the same distance from the base in every process.
  uint64_t base() const noexcept { return base_; }
  bool holds(uintptr_t address) const noexcept { return address - base_ >= begin_ && address - base_ < end_; }

  // Returns a function's place in the file; 0: it does not belong to the program.
  uint32_t place_of(uintptr_t function) const noexcept {
    const uint64_t place = function - base_;
    return contains(place) ? static_cast<uint32_t>(place) : 0;
  }
  // Returns the function at a place; 0: there is none.
  uintptr_t function_at(uint32_t place) const noexcept { return contains(place) ? base_ + place : 0; }

 private:
  struct Text {
    uint64_t begin, end;
  };
  void look(const dl_phdr_info& info) {
    base_ = info.dlpi_addr;
    for (size_t i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info.dlpi_phdr[i];
      for (const uint64_t word : {uint64_t{part.p_type}, uint64_t{part.p_flags}, uint64_t{part.p_vaddr}, uint64_t{part.p_memsz}}) add(word);
      if (part.p_type == PT_LOAD) {
        begin_ = std::min<uint64_t>(begin_, part.p_vaddr);
        end_ = std::max<uint64_t>(end_, part.p_vaddr + part.p_memsz);
      }
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) text_.push_back({part.p_vaddr, part.p_vaddr + part.p_memsz});
      if (part.p_type != PT_NOTE) continue;
      const auto* note = reinterpret_cast<const unsigned char*>(info.dlpi_addr + part.p_vaddr);
      for (size_t at = 0; at < part.p_memsz; ++at) add(note[at]);
    }
  }
  void add(uint64_t word) noexcept { fingerprint_ = (fingerprint_ ^ word) * 0x100000001B3; }  // FNV-1a
  bool contains(uint64_t place) const noexcept {
    for (const Text& each : text_) {
      if (place >= each.begin && place < each.end && place != 0 && place <= ~uint32_t{0}) return true;
    }
    return false;
  }

  uint64_t base_ = 0;
  uint64_t begin_ = ~uint64_t{0}, end_ = 0;  // relative to base_
  uint64_t fingerprint_ = 0xCBF29CE484222325;
  std::vector<Text> text_;
};

}  // namespace unet::am
