// Halving a range of members again and again, for any number of them.
#pragma once

#include <vector>

namespace unisono::algorithm {

// A level of the recursion, as one member sees it: the range [first, last) falls into a lower half
// [first, middle) and an upper half [middle, last), which is as large or one larger. Members
// first + i and middle + i are partners. If the upper half is larger, its last member, the odd one,
// has no partner of its own, and turns to middle - 1, the host, for what it has to give and get.
// Where the size is a power of two the partner of i at distance d is i xor d.
struct Halves {
  int first = 0;
  int middle = 0;
  int last = 0;
  int me = 0;

  bool is_lower() const { return me < middle; }
  bool has_odd() const { return last - middle > middle - first; }
  bool is_odd() const { return has_odd() && me == last - 1; }
  bool is_host() const { return has_odd() && me == middle - 1; }
  int partner() const { return is_lower() ? me + (middle - first) : me - (middle - first); }
  int odd() const { return last - 1; }
  int host() const { return middle - 1; }

  int my_first() const { return is_lower() ? first : middle; }
  int my_size() const { return is_lower() ? middle - first : last - middle; }
  int other_first() const { return is_lower() ? middle : first; }
  int other_size() const { return is_lower() ? last - middle : middle - first; }
};

// The levels that member `me` of `size` goes through, from the whole range down to its own half
// being itself: floor(log2 size) or ceil(log2 size) of them.
inline std::vector<Halves> halvings(int size, int me) {
  std::vector<Halves> levels;
  for (int first = 0, last = size; last - first > 1;) {
    levels.push_back({first, first + (last - first) / 2, last, me});
    const Halves& level = levels.back();
    first = level.my_first();
    last = first + level.my_size();
  }
  return levels;
}

}  // namespace unisono::algorithm
