// linkage.cc - reads a program's file: a script's first line, or the headers of an executable.
#include "apps/unet-sockets/linkage.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace unet::wrapper {
namespace {

constexpr int kScriptsMost = 4;  // Linux's limit for scripts interpreted by scripts
constexpr size_t kLineMost = 256;

bool is_program(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

// Searches as execvp() does. Empty: not found.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* const path = std::getenv("PATH");
  std::istringstream all(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string each; std::getline(all, each, ':');) {
    if (const std::string found = (each.empty() ? "." : each) + "/" + name; is_program(found)) return found;
  }
  return {};
}

// Reads a file's bytes, within its size.
class File {
 public:
  explicit File(const std::string& path) : in_(path, std::ios::binary) {}

  std::string bytes(uint64_t at, size_t most) {
    std::string all(most, 0);
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(at));
    in_.read(all.data(), static_cast<std::streamsize>(most));
    all.resize(static_cast<size_t>(std::max<std::streamsize>(in_.gcount(), 0)));
    return all;
  }
  template <typename T>
  std::optional<T> read(uint64_t at) {
    const std::string all = bytes(at, sizeof(T));
    if (all.size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, all.data(), sizeof value);
    return value;
  }

 private:
  std::ifstream in_;
};

// The interpreter in a script's first line; behind env, the program that env runs. Empty: not a script.
std::string interpreter_of(File& file) {
  const std::string start = file.bytes(0, kLineMost);
  if (!start.starts_with("#!")) return {};
  std::istringstream line(start.substr(2, start.find('\n') - 2));
  std::string first, word;
  line >> first;
  if (std::filesystem::path(first).filename() != "env") return first;
  while (line >> word) {
    if (!word.starts_with('-') && word.find('=') == std::string::npos) return word;
  }
  return first;
}

bool has_interpreter(File& file, const Elf64_Ehdr& header) {
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto each = file.read<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (each && each->p_type == PT_INTERP) return true;
  }
  return false;
}

// Whether Go's linker made it: its sections stay in a stripped program.
bool is_go(File& file, const Elf64_Ehdr& header) {
  constexpr size_t kNameMost = 32;
  const auto section = [&](uint64_t at) { return file.read<Elf64_Shdr>(header.e_shoff + at * sizeof(Elf64_Shdr)); };
  const auto names = section(header.e_shstrndx);
  for (uint64_t i = 0; names && i < header.e_shnum; ++i) {
    const auto each = section(i);
    if (!each) return false;
    const std::string name = file.bytes(names->sh_offset + each->sh_name, kNameMost).c_str();
    if (name == ".note.go.buildid" || name == ".go.buildinfo" || name.ends_with(".gopclntab")) return true;
  }
  return false;
}

bool changes_user(const std::string& path) {
  struct stat is;
  if (::stat(path.c_str(), &is) != 0) return false;
  return ((is.st_mode & S_ISUID) != 0 && is.st_uid != ::geteuid()) || ((is.st_mode & S_ISGID) != 0 && is.st_gid != ::getegid());
}

}  // namespace

std::optional<std::string> kernel_alone(const std::string& name) {
  std::string path = find_program(name);
  for (int i = 0; i < kScriptsMost && !path.empty(); ++i) {
    File file(path);
    const std::string interpreter = interpreter_of(file);
    if (!interpreter.empty()) {
      path = find_program(interpreter);
      continue;
    }
    const auto header = file.read<Elf64_Ehdr>(0);
    const auto own = File("/proc/self/exe").read<Elf64_Ehdr>(0);
    if (!header || !own || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
    if (changes_user(path)) return path + " gets rights of another user or group, and is given no library";
    if (header->e_ident[EI_CLASS] != own->e_ident[EI_CLASS] || header->e_machine != own->e_machine) {
      return path + " is for another kind of machine than the library";
    }
    if (is_go(file, *header)) return path + " is a program in Go, which calls the kernel without the C library";
    if (!has_interpreter(file, *header)) return path + " is linked statically";
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace unet::wrapper
