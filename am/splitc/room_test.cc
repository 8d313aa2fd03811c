// room_test.cc - which jobs are refused for their memory.
#include "am/splitc/room.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace unet::splitc::room_test {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

Job job_of(uint32_t size, uint64_t megabytes) {
  Job job;
  job.size = size;
  job.rank = size - 1;
  job.memory = megabytes * kMegabyte;
  return job;
}

std::string refused(const Job& job, bool asked, const Room& room) {
  const Status fit = check_room(job, asked, room);
  REQUIRE(!fit);
  REQUIRE(fit.error().code == Errc::out_of_memory);
  return fit.error().text;
}

// A directory with files of /proc and /sys.
class Root {
 public:
  Root() {
    std::string pattern = (std::filesystem::temp_directory_path() / "unet-room-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("what all ranks of a host ask for together is more than it has") {
  const Room room{.machine = 1000 * kMegabyte};
  REQUIRE(check_room(job_of(4, 250), true, room));
  REQUIRE(refused(job_of(4, 251), true, room) ==
          "4 ranks of this host with 251M of spread memory each take 1004M, but this host has 1000M of memory and "
          "swap: UNET_SPLITC_MEMORY=250M is the most for so many");
  REQUIRE(refused(job_of(1001, 2), true, room).find("memory and swap: start fewer ranks") != std::string::npos);
  REQUIRE(refused(job_of(1, 1001), true, room).find("a rank with 1001M of spread memory takes 1001M") == 0);
}

TEST_CASE("who has asked for nothing may use what is there") {
  REQUIRE(check_room(job_of(1000, 256), false, Room{.machine = 1000 * kMegabyte, .control_group = 100 * kMegabyte, .one_group = true}));
}

TEST_CASE("ranks of other hosts have their own memory") {
  Job job = job_of(4, 400);
  job.hosts = {"alpha", "alpha", "beta", "beta"};
  REQUIRE(check_room(job, true, Room{.machine = 800 * kMegabyte}));
  REQUIRE(refused(job, true, Room{.machine = 799 * kMegabyte}).find("2 ranks of this host") != std::string::npos);
}

TEST_CASE("ranks may have a control group each, unless unet-run has started them") {
  const Job job = job_of(4, 250);
  REQUIRE(check_room(job, true, Room{.control_group = 250 * kMegabyte}));
  REQUIRE(refused(job, true, Room{.control_group = 249 * kMegabyte}).find("their control group may have 249M") != std::string::npos);
  REQUIRE(check_room(job, true, Room{.control_group = 1000 * kMegabyte, .one_group = true}));
  REQUIRE(refused(job, true, Room{.control_group = 999 * kMegabyte, .one_group = true}).find("take 1000M") != std::string::npos);
}

TEST_CASE("a rank maps the memory of all, or only its own if it reaches them by messages") {
  Job job = job_of(4, 256);
  const Room room{.addresses = 1023 * kMegabyte};
  REQUIRE(refused(job, false, room).find("take 1024M, but this process may map 1023M (ulimit -v)") != std::string::npos);
  job.path = Path::messages;
  REQUIRE(check_room(job, false, room));
  REQUIRE(!check_room(job, false, Room{.addresses = 255 * kMegabyte}));
}

TEST_CASE("the least limit of the control groups around a process") {
  const Room machine = Room::here();
  REQUIRE(machine.machine != Room::kAnyRoom);
  for (const bool first_version : {true, false}) {
    const Root root;
    const std::string base = first_version ? "sys/fs/cgroup/memory" : "sys/fs/cgroup";
    const std::string file = first_version ? "/memory.limit_in_bytes" : "/memory.max";
    REQUIRE(Room::here(root.path()).control_group == Room::kAnyRoom);
    root.write("proc/self/cgroup", first_version ? "5:cpu:/x\n4:memory:/job/rank\n0::/" : "0::/job/rank");
    REQUIRE(Room::here(root.path()).control_group == Room::kAnyRoom);
    root.write(base + "/job/rank" + file, first_version ? "9223372036854771712" : "max");
    REQUIRE(Room::here(root.path()).control_group > uint64_t{1} << 62);
    root.write(base + "/job" + file, "1000");
    const uint64_t job_limit = Room::here(root.path()).control_group;
    REQUIRE(job_limit >= 1000);
    root.write(base + file, "600");   // what a container sees of the surrounding group
    REQUIRE(Room::here(root.path()).control_group == job_limit - 400);
  }
}

}  // namespace unet::splitc::room_test
