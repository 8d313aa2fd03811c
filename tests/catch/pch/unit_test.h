// unit_test.h - precompiled header of the unit test programs: the headers that nearly every unit test includes. A test still includes what
// it uses.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <catch2/catch.hpp>
#include <tl/expected.hpp>
