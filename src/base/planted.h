// Bugs on purpose, in one test build, to see that the tests find bugs of their kind: a missed free, a wrong comparison,
// a lost wake-up. HEADRACE_PLANTED(n) is false in every other build and leaves no code behind; in that one it is true
// while bug n is chosen. tests/planted/planted_bugs.cc says what each of them is and hunts them.
#pragma once

#ifdef HEADRACE_PLANTED_BUGS
namespace headrace {
extern int planted_bug;  // 0: none
}
#define HEADRACE_PLANTED(number) (::headrace::planted_bug == (number))
#else
#define HEADRACE_PLANTED(number) false
#endif
